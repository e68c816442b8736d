//! Tests that programs that never touch the device behave as without the preloaded object.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Object under test: built with this test, beside it.
fn object() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let object = own.with_file_name("libringroad_preload_netmap.so");
    assert!(object.is_file(), "{} is not built", object.display());
    object
}

/// Command without a daemon; killed if it takes longer than any command may.
fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).args(arguments).stdin(Stdio::null());
    command
        .env("RINGROAD_SOCKET", "/nonexistent/ringroad.sock")
        .env("RINGROAD_DAEMON", "/nonexistent/ringroadd");
    command
}

fn preloaded(program: &str, arguments: &[&str]) -> Output {
    command(program, arguments).env("LD_PRELOAD", object()).output().unwrap()
}

/// Runs a program with and without the object; exit and output must be the same, to the byte.
fn assert_same(program: &str, arguments: &[&str]) {
    let with = preloaded(program, arguments);
    let without = command(program, arguments).output().unwrap();
    assert!(without.status.success(), "{}", String::from_utf8_lossy(&without.stderr));
    assert_eq!(with, without, "{program} {arguments:?}");
}

#[test]
fn a_c_program_sees_a_device_that_cannot_be_opened_and_nothing_else_changed() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("untouched");
    let compat = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat");
    let compiled = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(compat.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(compat.join("tests/preload/untouched.c"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = preloaded(program.to_str().unwrap(), &[]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(ran.stdout.is_empty() && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn shells_run_unchanged() {
    let script = "
        exec 900>/dev/null; echo x >&900; exec 900>&-
        (echo in a subshell) | tr a-z A-Z
        for number in 1 2 3; do (exit $number); echo $?; done
        cat <<< here; cat < <(echo substituted)
        sleep 0.01 & wait; read -t 0.01 nothing < <(sleep 1); echo $?
        no-such-command-anywhere; echo $?
        test -e /dev/null && ls -d /dev/null && stat -c %F /tmp";
    let with = preloaded("bash", &["-c", script]);
    let without = command("bash", &["-c", script]).output().unwrap();
    assert_eq!(with, without);
    assert!(String::from_utf8_lossy(&without.stdout).contains("IN A SUBSHELL"));
}

#[test]
fn event_loops_and_children_run_unchanged() {
    assert_same(
        "python3",
        &[
            "-c",
            "
import os, select, signal, socket, subprocess, mmap, array
a, b = socket.socketpair()
e = select.epoll()
e.register(a, select.EPOLLIN | select.EPOLLET)
print(e.poll(0), select.select([a], [b], [], 0)[0])
b.send(b'x')
print(len(e.poll()), len(e.poll(0)), len(select.select([a], [b], [])[1]))
copy = select.epoll.fromfd(os.dup(e.fileno()))
e.close()
b.send(b'y')
print(len(copy.poll()))
p = select.poll()
p.register(a, select.POLLIN)
print(p.poll(0) == [(a.fileno(), select.POLLIN)])
print(subprocess.run(['echo', 'child'], capture_output=True, close_fds=True).stdout)
print(subprocess.run(['sh', '-c', 'exit 3']).returncode)
r, w = os.pipe()
if os.fork() == 0:
    os.closerange(w + 1, 1024)
    os.write(w, b'forked')
    os._exit(0)
print(os.read(r, 10), os.wait()[1])
a.send(b'z')
socket.send_fds(b, [b'fd'], [w])
print(len(socket.recv_fds(a, 10, 2)[1]))
m = mmap.mmap(-1, 8192); m.resize(65536); m.close()
try:
    select.select([10000], [], [])
except (OSError, ValueError) as error:
    print(type(error))
os.dup2(w, 1000); os.close(1000)
signal.signal(signal.SIGALRM, lambda *_: print('alarm'))
signal.setitimer(signal.ITIMER_REAL, 0.05)
print(select.poll().poll(200))
",
        ],
    );
}
