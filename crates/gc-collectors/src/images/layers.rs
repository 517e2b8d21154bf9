//! Shared layers: those that more than one image contains.
//!
//! Runtimes report the layers of an image but not their sizes, so all of its layers count the same.

use hashbrown::HashMap;

use super::{Image, LayerId};
use crate::FixedState;

/// The number of images that contain each layer. Never iterated.
#[derive(Debug)]
pub struct LayerUsers {
    users: HashMap<LayerId, u32, FixedState>,
}

impl LayerUsers {
    /// Counts the layers of images; pass each image once.
    #[must_use]
    pub fn of<'a>(images: impl Iterator<Item = &'a Image>) -> Self {
        let mut users = HashMap::default();
        for layer in images.flat_map(|image| &*image.layers) {
            *users.entry(*layer).or_insert(0) += 1;
        }
        Self { users }
    }

    /// Removes an image, and returns the size of its layers that no other image contains; its whole size if its layers are unknown.
    pub fn take(&mut self, image: &Image) -> u64 {
        let mut freed = 0;
        for layer in &*image.layers {
            if let Some(users) = self.users.get_mut(layer).filter(|users| **users > 0) {
                *users -= 1;
                freed += usize::from(*users == 0);
            }
        }
        share_of(image, freed).unwrap_or(image.size_bytes)
    }

    /// Reports whether an image contains a layer.
    #[must_use]
    pub fn is_used(&self, layer: LayerId) -> bool {
        self.users.get(&layer).is_some_and(|users| *users > 0)
    }

    /// Returns the size of an image's layers that another image also contains; `None` if its layers are unknown.
    #[must_use]
    pub fn shared_bytes(&self, image: &Image) -> Option<u64> {
        let shared = |layer: &&LayerId| self.users.get(*layer).is_some_and(|users| *users > 1);
        share_of(image, image.layers.iter().filter(shared).count())
    }
}

/// Returns the size of this number of an image's layers, in bytes.
fn share_of(image: &Image, layers: usize) -> Option<u64> {
    let part = (u128::from(image.size_bytes) * layers as u128).checked_div(image.layers.len() as u128)?;
    Some(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{image, layer};
    use super::*;

    fn with(size_bytes: u64, layers: &[u64]) -> Image {
        Image { layers: layers.iter().map(|&number| layer(number)).collect(), ..image(1, size_bytes) }
    }

    #[test]
    fn a_layer_is_shared_until_its_last_image_is_removed() {
        let images = [with(100, &[1, 2]), with(300, &[1, 2, 3]), with(90, &[4]), with(7, &[])];
        let mut users = LayerUsers::of(images.iter());
        let shared = |users: &LayerUsers| images.each_ref().map(|image| users.shared_bytes(image));
        assert_eq!(shared(&users), [Some(100), Some(200), Some(0), None]);
        assert_eq!(users.take(&images[1]), 100, "its third layer");
        assert_eq!(shared(&users), [Some(0), Some(0), Some(0), None]);
        assert_eq!([0, 2, 3].map(|index: usize| users.take(&images[index])), [100, 90, 7]);
    }

    #[test]
    fn a_layer_is_used_until_its_last_image_is_removed() {
        let images = [with(100, &[1, 2]), with(300, &[2, 3])];
        let mut users = LayerUsers::of(images.iter());
        let used = |users: &LayerUsers| [1, 2, 3, 4].map(|number| users.is_used(layer(number)));
        assert_eq!(used(&users), [true, true, true, false]);
        users.take(&images[0]);
        assert_eq!(used(&users), [false, true, true, false]);
        users.take(&images[1]);
        assert_eq!(used(&users), [false; 4]);
    }
}
