//! Verbs of the command line: a module for each, and the table of all verbs.

pub(crate) mod attach;
#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod capture;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod container;
pub(crate) mod demo;
pub(crate) mod detach;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod explain;
pub(crate) mod flows;
pub(crate) mod fwd;
pub(crate) mod r#gen;
mod guests;
pub(crate) mod kinds;
pub(crate) mod link;
pub(crate) mod list;
pub(crate) mod macs;
pub(crate) mod man;
pub(crate) mod metrics;
pub(crate) mod mirror;
mod namespaces;
#[cfg(feature = "otg")]
pub(crate) mod otg;
pub(crate) mod port;
pub(crate) mod recv;
pub(crate) mod reload;
pub(crate) mod replay;
pub(crate) mod run;
#[cfg(feature = "script")]
pub(crate) mod script;
pub(crate) mod sflow;
pub(crate) mod status;
pub(crate) mod switch;
pub(crate) mod sze2;
pub(crate) mod testpmd;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod trial;
pub(crate) mod unlink;
pub(crate) mod up;
pub(crate) mod upgrade;
pub(crate) mod vm;

use clap::Subcommand;

use crate::failure::Failure;
use crate::options::Global;
use crate::output::Output;
use crate::verb::MainVerb;

macro_rules! verbs {
    ($( $(#[$condition:meta])? $verb:ident($module:ident::$arguments:ident), )*) => {
        // A doc comment here would replace the help of `ringroad`.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $( $(#[$condition])? $verb(Box<$module::$arguments>), )*
        }

        impl Command {
            pub(crate) fn run(&self, global: &Global, output: &Output) -> Result<(), Failure> {
                match self { $( $(#[$condition])? Self::$verb(verb) => verb.run(global, output), )* }
            }

            /// Returns the examples of each verb, in the order of clap's subcommands.
            pub(crate) fn examples() -> impl Iterator<Item = &'static str> {
                [$( $(#[$condition])? <$module::$arguments as MainVerb>::EXAMPLES, )*].into_iter()
            }
        }
    };
}

// Verbs in the order of `ringroad --help`.
verbs! {
    Up(up::UpArgs),
    Down(down::DownArgs),
    Status(status::StatusArgs),
    List(list::ListArgs),
    Kinds(kinds::KindsArgs),
    Attach(attach::AttachArgs),
    Detach(detach::DetachArgs),
    Link(link::LinkArgs),
    Unlink(unlink::UnlinkArgs),
    Vm(vm::VmArgs),
    KeepUml(vm::KeepUmlArgs),
    Container(container::ContainerArgs),
    KeepNamespace(container::KeepNamespaceArgs),
    Testpmd(testpmd::TestpmdArgs),
    Sze2(sze2::Sze2Args),
    Config(config::ConfigArgs),
    Reload(reload::ReloadArgs),
    Upgrade(upgrade::UpgradeArgs),
    Macs(macs::MacsArgs),
    Mirror(mirror::MirrorArgs),
    Port(port::PortArgs),
    Switch(switch::SwitchArgs),
    Flows(flows::FlowsArgs),
    Explain(explain::ExplainArgs),
    Trace(trace::TraceArgs),
    Gen(r#gen::GenArgs),
    Trial(trial::TrialArgs),
    Recv(recv::RecvArgs),
    Fwd(fwd::FwdArgs),
    Capture(capture::CaptureArgs),
    Replay(replay::ReplayArgs),
    Run(run::RunArgs),
    #[cfg(feature = "script")]
    Script(script::ScriptArgs),
    #[cfg(feature = "otg")]
    Otg(otg::OtgArgs),
    #[cfg(feature = "top")]
    Top(top::TopArgs),
    Metrics(metrics::MetricsArgs),
    Sflow(sflow::SflowArgs),
    Doctor(doctor::DoctorArgs),
    Demo(demo::DemoArgs),
    #[cfg(feature = "bench")]
    Bench(bench::BenchArgs),
    #[cfg(feature = "bench")]
    BenchWorker(bench::BenchWorkerArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}
