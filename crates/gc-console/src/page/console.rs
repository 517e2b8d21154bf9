//! The page as the extension of an embedded server.

use std::sync::Arc;

use futures::future::BoxFuture;
use gc_apiserver::{Audience, Extension, ExtensionAnswer, ExtensionRequest, InProcess, Sessions};
use gc_embedded::console::{Console, MakeConsole};
use gc_kube::{Observer, ResourceTable};
use gc_process::collectors::MakeSinks;
use gc_registry::api::UserInfo;

use super::Page;

/// Returns a function that creates the page of a server and of each of its forks.
#[must_use]
pub fn maker() -> MakeConsole {
    Arc::new(|clock, journal| Arc::new(Page::new(clock.clone(), journal)))
}

impl Extension for Page {
    fn audience(&self, path: &str) -> Option<Audience> {
        Page::audience(path)
    }

    fn sessions(&self) -> Option<&Sessions> {
        Some(Page::sessions(self))
    }

    fn accepts_session(&self, path: &str) -> bool {
        Page::accepts_session(path)
    }

    fn answer(&self, request: ExtensionRequest) -> BoxFuture<'static, Option<ExtensionAnswer>> {
        Box::pin(Page::answer(self.clone(), request))
    }
}

impl Console for Page {
    fn sinks(&self, others: Arc<MakeSinks>) -> Arc<MakeSinks> {
        Page::sinks(self, others)
    }

    fn observer_of(&self, name: &'static str, table: &ResourceTable) -> Arc<dyn Observer> {
        self.0.feed.observer_of(name, table)
    }

    fn serve(&self, server: &InProcess) {
        Page::serve(self, server);
    }

    fn follow_orders(&self) -> BoxFuture<'static, ()> {
        Box::pin(Page::follow_orders(self))
    }

    fn link(&self, user: UserInfo) -> Option<String> {
        Page::link(self, user)
    }
}
