//! Turns the outcomes of a batch into one list of frames per destination, keeping the order of frames for each.

use std::ops::Range;

use ringroad_port::batch::BATCH_FRAMES;

/// Lists of frame numbers by destination. All memory is allocated once.
#[derive(Debug)]
pub struct Groups {
    lists: Vec<Vec<u16>>,
    touched: Vec<u16>,
}

impl Groups {
    /// Allocates lists for `destinations` destinations.
    #[must_use]
    pub fn new(destinations: usize) -> Self {
        Self {
            lists: (0..destinations).map(|_| Vec::new()).collect(),
            touched: Vec::with_capacity(destinations),
        }
    }

    /// Adds frame number `frame` to the list of `destination`; a destination out of range is ignored.
    #[inline]
    pub fn add(&mut self, destination: u16, frame: u16) {
        if let Some(list) = self.list(destination) {
            list.push(frame);
        }
    }

    /// Adds frames to the list of `destination`.
    #[inline]
    pub fn add_all(&mut self, destination: u16, frames: Range<u16>) {
        if let Some(list) = self.list(destination) {
            list.extend(frames);
        }
    }

    #[inline]
    fn list(&mut self, destination: u16) -> Option<&mut Vec<u16>> {
        let list = self.lists.get_mut(usize::from(destination))?;
        if list.is_empty() {
            if list.capacity() == 0 {
                // Allocated once in the life of a destination.
                list.reserve_exact(BATCH_FRAMES);
            }
            self.touched.push(destination);
        }
        Some(list)
    }

    /// Destinations that have frames, in the order of their first frame.
    #[inline]
    #[must_use]
    pub fn touched(&self) -> &[u16] {
        &self.touched
    }

    /// Frames in the list of `destination`.
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
