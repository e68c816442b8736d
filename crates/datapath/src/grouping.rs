//! Turns the fates of a batch into one list of frames per destination, keeping the order of frames for each.

use std::ops::Range;

use ringroad_port::batch::BATCH_FRAMES;

/// Lists of frame numbers by destination. All memory is allocated once.
#[derive(Debug)]
pub struct Groups {
    lists: Vec<Vec<u16>>,
    touched: Vec<u16>,
}

impl Groups {
    /// Room for `destinations` destinations.
    #[must_use]
    pub fn new(destinations: usize) -> Self {
        Self {
            lists: (0..destinations).map(|_| Vec::new()).collect(),
            touched: Vec::with_capacity(destinations),
        }
    }

    /// Adds frame number `frame` to the list of `destination`; beyond the room it is ignored.
    #[inline]
    pub fn add(&mut self, destination: u16, frame: u16) {
        let Some(list) = self.lists.get_mut(usize::from(destination)) else { return };
        if list.is_empty() {
            if list.capacity() == 0 {
                // Once in the life of a destination.
                list.reserve_exact(BATCH_FRAMES);
            }
            self.touched.push(destination);
        }
        list.push(frame);
    }

    /// Adds more frames to the list of a destination that has one already.
    #[inline]
    pub fn extend(&mut self, destination: u16, frames: Range<u16>) {
        self.lists.get_mut(usize::from(destination)).into_iter().for_each(|list| list.extend(frames.clone()));
    }

    /// Destinations that have frames, in the order of their first frame.
    #[inline]
    #[must_use]
    pub fn touched(&self) -> &[u16] {
        &self.touched
    }

    /// The frames of `destination`.
    #[inline]
    #[must_use]
    pub fn frames(&self, destination: u16) -> &[u16] {
        self.lists.get(usize::from(destination)).map_or(&[], Vec::as_slice)
    }

    /// Empties all lists.
    #[inline]
    pub fn clear(&mut self) {
        for &destination in &self.touched {
            if let Some(list) = self.lists.get_mut(usize::from(destination)) {
                list.clear();
            }
        }
        self.touched.clear();
    }
}
