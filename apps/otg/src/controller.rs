//! Carries out the requests of the model.

use ringroad_generator::KeptPorts;
use serde_json::{Value, json};

use crate::config::Config;
use crate::document::Problems;
use crate::locations::Locations;
use crate::metrics;
use crate::refusal::Refusal;
use crate::traffic::{SessionSettings, Traffic, Transmit};

/// Versions of the model whose clients can use this server: requests that use newer features are refused.
const MODEL_VERSIONS: &str = "^1.0.0";
const NO_CAPTURE: &str = "capture is not supported here; use `ringroad capture PORT`";

/// The configuration that is in force, and its traffic.
#[derive(Debug)]
pub(crate) struct Controller {
    settings: SessionSettings,
    locations: Locations,
    traffic: Option<Traffic>,
}

impl Controller {
    /// Makes a controller without a configuration. It opens only ports that `locations` allows, with the settings in
    /// `settings`.
    pub(crate) fn new(settings: SessionSettings, locations: Locations) -> Self {
        Self { settings, locations, traffic: None }
    }

    /// `GET /config`
    pub(crate) fn config(&mut self, _: Value) -> Result<Value, Refusal> {
        Ok(self.document())
    }

    /// `POST /config`
    pub(crate) fn set_config(&mut self, request: Value) -> Result<Value, Refusal> {
        if !request.is_object() {
            return Err(Refusal::invalid("the request has no configuration; give an object"));
        }
        self.apply(Config::read(request)?)
    }

    /// `PATCH /config`
    pub(crate) fn update_config(&mut self, request: Value) -> Result<Value, Refusal> {
        let mut document = self.document();
        Problems::collect(&request, |root| {
            let Some((_, update)) = root.chosen(&["flows"], "flows") else { return };
            update.only(&["property_names", "flows"]);
            let mut properties = update.get("property_names").texts();
            properties.sort_unstable();
            properties.dedup();
            for property in properties.iter().filter(|name| !["rate", "size"].contains(name)) {
                update.get("property_names").report(format_args!("\"{property}\" given; give rate or size"));
            }
            for flow in update.get("flows").items() {
                let name = flow.get("name");
                let Some(known) = flow_named(&mut document, name.required_text()) else {
                    name.report("no flow has this name");
                    continue;
                };
                for property in &properties {
                    known.insert((*property).to_owned(), flow.get(property).value().clone());
                }
            }
        })?;
        self.replace(document)
    }

    /// `PATCH /config/append`
    pub(crate) fn append_config(&mut self, request: Value) -> Result<Value, Refusal> {
        let mut document = self.document();
        Problems::collect(&request, |root| {
            root.only(&["config_append_list"]);
            for resource in root.get("config_append_list").items() {
                let Some((_, flows)) = resource.chosen(&["flows"], "flows") else { continue };
                let added = flows.items();
                if let Some(list) = flow_list(&mut document) {
                    list.extend(added.iter().map(|flow| flow.value().clone()));
                }
            }
        })?;
        self.replace(document)
    }

    /// `PATCH /config/delete`
    pub(crate) fn delete_config(&mut self, request: Value) -> Result<Value, Refusal> {
        let mut document = self.document();
        Problems::collect(&request, |root| {
            root.only(&["config_delete_list"]);
            for resource in root.get("config_delete_list").items() {
                let Some((_, flows)) = resource.chosen(&["flows"], "flows") else { continue };
                for name in flows.texts() {
                    if flow_named(&mut document, name).is_none() {
                        flows.report(format_args!("no flow is called \"{name}\""));
                    }
                    if let Some(list) = flow_list(&mut document) {
                        list.retain(|flow| flow.get("name").and_then(Value::as_str) != Some(name));
                    }
                }
            }
        })?;
        self.replace(document)
    }

    /// `POST /control/state`
    pub(crate) fn set_state(&mut self, request: Value) -> Result<Value, Refusal> {
        let config = self.traffic.as_ref().map(Traffic::config);
        let flows: Vec<&str> =
            config.iter().flat_map(|config| &config.flows).map(|flow| flow.name.as_str()).collect();
        let wanted =
            Problems::collect(&request, |root| match root.chosen(&["traffic", "port"], "traffic")? {
                ("traffic", traffic) => {
                    let (_, transmit) = traffic.chosen(&["flow_transmit"], "flow_transmit")?;
                    transmit.only(&["flow_names", "state"]);
                    let state = transmit.get("state");
                    state.required_text();
                    let command = state.one_of(&["start", "stop", "pause", "resume"], "stop");
                    Some((command, metrics::rows(&transmit.get("flow_names"), &flows)))
                }
                (_, port) => {
                    match port.chosen(&["link", "capture"], "link")? {
                        ("link", link) if link.get("state").required_text() != "up" => {
                            link.get("state").report_value("up: links cannot be taken down here");
                        }
                        ("capture", capture) if capture.get("state").required_text() != "stop" => {
                            capture.report(NO_CAPTURE);
                        }
                        _ => {}
                    }
                    None
                }
            })?;
        match wanted {
            Some((command, flows)) => self.transmit(command, &flows),
            None => Ok(warnings(&[])),
        }
    }

    /// `POST /control/action`
    pub(crate) fn action(&mut self, _: Value) -> Result<Value, Refusal> {
        Err(Refusal::invalid(
            "actions are not supported: there are no emulated devices, and ports are not rebooted",
        ))
    }

    /// `POST /monitor/metrics`
    pub(crate) fn metrics(&mut self, request: Value) -> Result<Value, Refusal> {
        let nothing = Config::default();
        let metrics_request =
            metrics::request(&request, self.traffic.as_ref().map_or(&nothing, Traffic::config))?;
        match &mut self.traffic {
            Some(traffic) => {
                let counts = traffic.counts(metrics_request.is_of_flows())?;
                Ok(metrics::response(&metrics_request, traffic.config(), &counts))
            }
            None => Ok(metrics::response(&metrics_request, &nothing, &crate::traffic::Counts::default())),
        }
    }

    /// `POST /monitor/states`
    pub(crate) fn states(&mut self, _: Value) -> Result<Value, Refusal> {
        Err(Refusal::invalid("states are not supported: there are no emulated devices"))
    }

    /// `POST /monitor/capture`
    pub(crate) fn capture(&mut self, _: Value) -> Result<Value, Refusal> {
        Err(Refusal::invalid(NO_CAPTURE))
    }

    /// `GET /capabilities/version`
    pub(crate) fn version(&mut self, _: Value) -> Result<Value, Refusal> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(json!({"api_spec_version": MODEL_VERSIONS, "sdk_version": "", "app_version": version}))
    }

    /// `GET /ringroad/flows`, a request outside the model.
    pub(crate) fn flows(&mut self, _: Value) -> Result<Value, Refusal> {
        let Some(traffic) = &mut self.traffic else {
            return Err(Refusal::invalid("nothing is configured; set a configuration first"));
        };
        serde_json::to_value(traffic.outcome()?)
            .map_err(|error| Refusal::internal(format!("writing the flows: {error}")))
    }

    fn document(&self) -> Value {
        self.traffic.as_ref().map_or_else(|| json!({}), |traffic| traffic.config().document.clone())
    }

    /// Applies a configuration derived from the current one.
    fn replace(&mut self, document: Value) -> Result<Value, Refusal> {
        if self.traffic.as_ref().is_some_and(Traffic::is_transmitting) {
            return Err(Refusal::invalid("flows cannot be changed while one transmits; stop it first"));
        }
        self.apply(Config::read(document)?)
    }

    /// Applies `config`, or leaves everything unchanged.
    fn apply(&mut self, config: Config) -> Result<Value, Refusal> {
        self.check_locations(&config)?;
        let answer = warnings(&config.warnings);
        // A port can be open only once, and both configurations may contain it.
        let (before, mut kept) = match self.traffic.take() {
            Some(traffic) => {
                let (config, kept) = traffic.close();
                (Some(config), kept)
            }
            None => (None, KeptPorts::default()),
        };
        match Traffic::open(config, &mut kept, &self.settings) {
            Ok(traffic) => {
                self.traffic = Some(traffic);
                Ok(answer)
            }
            Err(refusal) => {
                self.traffic =
                    before.and_then(|before| Traffic::open(before, &mut kept, &self.settings).ok());
                Err(refusal)
            }
        }
    }

    fn check_locations(&self, config: &Config) -> Result<(), Refusal> {
        let refused = config.ports.iter().enumerate().filter_map(|(index, port)| {
            let why = self.locations.check(&port.location).err()?;
            Some(format!("ports[{index}].location: {why}"))
        });
        let refused: Vec<String> = refused.collect();
        if refused.is_empty() { Ok(()) } else { Err(Refusal::validation(refused, 0)) }
    }

    fn transmit(&mut self, command: &str, flows: &[usize]) -> Result<Value, Refusal> {
        let Some(traffic) = &mut self.traffic else {
            return Err(Refusal::invalid("nothing is configured; set a configuration first"));
        };
        match command {
            "start" => traffic.start(flows, &self.settings)?,
            "resume" => traffic.resume(flows)?,
            "pause" => {
                let limited = flows.iter().filter_map(|index| traffic.config().flows.get(*index));
                let limited =
                    limited.filter(|flow| flow.load.frames.is_some() || flow.load.duration.is_some());
                let names: Vec<&str> = limited.map(|flow| flow.name.as_str()).collect();
                if !names.is_empty() {
                    return Err(Refusal::invalid(format!(
                        "traffic.flow_transmit.state: flows of limited duration cannot pause ({}); stop and start them",
                        names.join(", ")
                    )));
                }
                traffic.stop(flows, Transmit::Paused)?;
            }
            _ => traffic.stop(flows, Transmit::Stopped)?,
        }
        Ok(warnings(&[]))
    }
}

/// Makes the model's `warning` document.
fn warnings(texts: &[String]) -> Value {
    json!({"warnings": texts})
}

/// Returns the flows of a configuration, which become an empty list if missing; `None` if they are not a list.
fn flow_list(document: &mut Value) -> Option<&mut Vec<Value>> {
    let flows = document.as_object_mut()?.entry("flows").or_insert(Value::Null);
    if flows.is_null() {
        *flows = json!([]);
    }
    flows.as_array_mut()
}

fn flow_named<'a>(document: &'a mut Value, name: &str) -> Option<&'a mut serde_json::Map<String, Value>> {
    let named = |flow: &&mut Value| flow.get("name").and_then(Value::as_str) == Some(name);
    flow_list(document)?.iter_mut().find(named)?.as_object_mut()
}
