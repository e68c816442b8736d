//! Requests about the configuration: saving, comparing, applying, reloading.

use ringroad_control::message::{ErrorKind, ErrorReply, Reply};
use ringroad_control::report::ReloadReport;
use tracing::{info, warn};

use super::{RequestError, Server, ServerError, ServerParts, rules};
use crate::config::{Config, Log};
use crate::listen::set_access;
use crate::port_entries::ClientId;
use crate::refusal::refuse;
use crate::{reload, saving, shortcuts};

impl Server {
    /// Writes ports into the configuration file.
    pub(super) fn save(&mut self, names: &[String]) -> Result<Reply, ErrorReply> {
        let ServerParts { ports, config, config_path: Some(path), .. } = &mut self.parts else {
            return Err(without_file());
        };
        let saved = saving::save(ports, config, path, names)?;
        info!(added = ?saved.added, removed = ?saved.removed, "ports saved");
        Ok(Reply::Saved(saved))
    }

    /// Compares the configuration in force with another configuration, or with the daemon's file.
    pub(super) fn compare(&self, text: Option<&str>) -> Result<Reply, ErrorReply> {
        let other = match (text, &self.parts.config_path) {
            (Some(text), _) => Config::parse(text, "given"),
            (None, Some(path)) => Config::read(path),
            (None, None) => return Err(without_file()),
        };
        let other = other.map_err(|error| refuse(ErrorKind::BadRequest, error, ""))?;
        let difference = saving::compare(&self.parts.ports, &self.parts.config, &other);
        Ok(Reply::ConfigDifference(difference))
    }

    /// Writes a configuration into the daemon's file and reloads the file, or leaves both unchanged.
    pub(super) fn apply(&mut self, text: &str, asking: ClientId) -> Result<Reply, RequestError> {
        let difference = self.compare(Some(text))?;
        let path = self.parts.config_path.clone().ok_or_else(without_file)?;
        let bad = |what: &str| refuse(ErrorKind::BadRequest, format!("{}: {what}", path.display()), "");
        let old = std::fs::read_to_string(&path).and_then(|old| saving::replace(&path, text).map(|()| old));
        let old = old.map_err(|error| bad(&error.to_string()))?;
        let Err(message) = self.reload(asking)? else { return Ok(difference) };
        saving::replace(&path, &old).map_err(|error| {
            bad(&format!("{message}; and the file before it cannot be restored: {error}"))
        })?;
        // The restored file is reloaded, so that the earlier configuration is in force again.
        let restored = self.reload(asking)?.err().map(|again| format!("; after that: {again}"));
        Err(bad(&format!("{message}; nothing was changed{}", restored.unwrap_or_default())).into())
    }

    /// Reopens the log file, reads the configuration again and applies it. On an error it returns the reason, and the
    /// parts concerned stay unchanged.
    pub(super) fn reload(&mut self, asking: ClientId) -> Result<Result<ReloadReport, String>, ServerError> {
        let path = self.parts.config_path.as_deref();
        let read = path.map_or_else(|| Ok(self.parts.config.clone()), Config::read);
        // A program that rotates log files relies on the reopened file, even if the configuration is invalid.
        let log = &read.as_ref().unwrap_or(&self.parts.config).log;
        let mut problems: Vec<_> = self.parts.log.reopen(log).err().into_iter().collect();
        let new = match read {
            Ok(new) => new,
            Err(error) => {
                problems.insert(0, error);
                return Ok(Err(problems.join("; ")));
            }
        };
        let at_next_start = reload::needs_restart(&self.parts.config, &new);
        for key in &at_next_start {
            warn!(key, "takes effect at the next start");
        }
        if let Err(problem) = self.parts.log.set_level(&new.log.level) {
            problems.push(problem);
        }
        if let Ok(mode) = new.socket_mode()
            && let Err(error) = set_access(&self.parts.socket, mode, new.socket.gid)
        {
            problems.push(error.to_string());
        }
        self.parts.ports.permissions = rules(&new);
        problems.extend(reload::apply_policies(&mut self.parts.ports, &new.port_policy));
        // Frames of a port that has settings now must not pass within the kernel.
        shortcuts::follow(&self.parts.ports.table);
        problems.extend(reload::apply_settings(&mut self.parts.ports, &self.parts.config, &new)?);
        self.ports_at_check = usize::MAX;
        let applied = reload::apply_ports(&mut self.parts.ports, &new.port);
        self.watch_waiting_ports();
        self.netmap.forget_detached(&self.parts.ports);
        self.drop_clients(applied.lost, asking)?;
        problems.extend(applied.problems.into_iter().chain(applied.waiting));
        // Keys that need a restart keep the values of the start.
        let started = &self.parts.config;
        self.parts.config = Config {
            workers: started.workers.clone(),
            switch: started.switch.clone(),
            limits: started.limits.clone(),
            log: Log { format: started.log.format, ..new.log },
            ..new
        };
        self.parts.ports.keep_to(&self.parts.config);
        info!(ports = self.parts.ports.table.on_switches().len(), "configuration reloaded");
        if problems.is_empty() {
            let config = self.parts.config_path.as_ref().map(|path| path.display().to_string());
            return Ok(Ok(ReloadReport { config, at_next_start }));
        }
        if !at_next_start.is_empty() {
            problems.push(format!("at the next start: {}", at_next_start.join(", ")));
        }
        Ok(Err(problems.join("; ")))
    }
}

pub(super) fn without_file() -> ErrorReply {
    refuse(
        ErrorKind::BadRequest,
        "the daemon was started without a configuration file",
        "start it with one: ringroad up --config FILE",
    )
}
