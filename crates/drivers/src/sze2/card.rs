//! The state that all parts of a card share: settings, counters, channels.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringroad_sze2::card::counters::{SharedIbufCounters, SharedObufCounters};
use ringroad_sze2::card::design::CardDesign;
use ringroad_sze2::card::settings::CardSettings;
use ringroad_sze2::memory::ChannelGeometry;
use ringroad_sze2::message::{CardInfo, CardStatus};

use super::channel::{ReceiveChannel, TransmitChannel};

#[derive(Debug)]
pub(super) struct Card {
    /// Properties of the card with a design that limits nothing.
    info: CardInfo,
    pub(super) geometry: ChannelGeometry,
    settings: Mutex<Arc<CardSettings>>,
    /// Number of changes of the settings, so that a worker detects a change without a lock.
    version: AtomicU64,
    pub(super) ibuf: SharedIbufCounters,
    pub(super) obuf: SharedObufCounters,
    pub(super) receive: Vec<ReceiveChannel>,
    pub(super) transmit: Vec<TransmitChannel>,
}

/// Locks a value. It stays consistent: no code that can panic runs under a lock.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Card {
    pub(super) fn new(
        name: String,
        design: &'static CardDesign,
        channels: u16,
        geometry: ChannelGeometry,
        address: [u8; 6],
        timestamps: bool,
    ) -> Self {
        let info = CardInfo {
            name,
            receive_channels: channels,
            transmit_channels: channels,
            receive_buffer_bytes: geometry.buffer_bytes,
            transmit_buffer_bytes: geometry.buffer_bytes,
            address,
        };
        let settings = CardSettings::new(design, channels, address, timestamps);
        Self {
            info,
            geometry,
            settings: Mutex::new(Arc::new(settings)),
            version: AtomicU64::new(1),
            ibuf: SharedIbufCounters::default(),
            obuf: SharedObufCounters::default(),
            receive: (0..channels).map(|_| ReceiveChannel::default()).collect(),
            transmit: (0..channels).map(|_| TransmitChannel::default()).collect(),
        }
    }

    /// Present settings.
    pub(super) fn settings(&self) -> Arc<CardSettings> {
        Arc::clone(&lock(&self.settings))
    }

    /// Version of the settings, which differs after each change.
    #[inline]
    pub(super) fn settings_version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Changes the settings. Batches in progress use the old ones.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut CardSettings) -> T) -> T {
        let mut settings = lock(&self.settings);
        let result = change(Arc::make_mut(&mut settings));
        self.version.fetch_add(1, Ordering::Release);
        result
    }

    /// Properties of the card with its present design.
    pub(super) fn info(&self) -> CardInfo {
        let most = self.settings().design.channels;
        CardInfo {
            receive_channels: self.info.receive_channels.min(most),
            transmit_channels: self.info.transmit_channels.min(most),
            ..self.info.clone()
        }
    }

    /// Loads a design: settings and counters are as at the start.
    pub(super) fn boot(&self, design: &'static CardDesign) {
        let CardInfo { receive_channels, address, .. } = self.info;
        self.change(|settings| {
            *settings = CardSettings::new(design, receive_channels, address, settings.timestamps);
        });
        self.clear_counters();
    }

    pub(super) fn clear_counters(&self) {
        self.ibuf.clear();
        self.obuf.clear();
        let receive = self.receive.iter().map(|channel| &channel.record);
        let transmit = self.transmit.iter().map(|channel| &channel.record);
        receive.chain(transmit).for_each(|record| record.counters.clear());
    }

    pub(super) fn status(&self) -> CardStatus {
        let settings = self.settings();
        let info = self.info();
        let channels = usize::from(info.receive_channels);
        CardStatus {
            info,
            ibuf: settings.ibuf.clone(),
            ibuf_counters: self.ibuf.read(),
            obuf_enabled: settings.obuf_enabled,
            obuf_counters: self.obuf.read(),
            distribution: settings.distribution,
            filter: settings.filter.to_string(),
            timestamps: settings.timestamps,
            receive: self.receive.iter().take(channels).map(|channel| channel.record.status(true)).collect(),
            transmit: self
                .transmit
                .iter()
                .take(channels)
                .map(|channel| channel.record.status(false))
                .collect(),
        }
    }
}
