//! Service accounts: nothing but their metadata is checked.

use crate::kinds::field::Field;
use crate::kinds::kind::Kind;
use crate::kinds::report::Report;
use crate::resource::Target;

pub(crate) struct ServiceAccount;

impl Kind for ServiceAccount {
    fn validate(&self, _: Target<'_>, _: &Field<'_, '_>, _: &mut Report) {}
}
