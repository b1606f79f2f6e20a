//! A bar on the terminal that follows what the device says, from a thread of its own: the device is
//! not asked, let alone stopped.

use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::system::Progress;

const PERIOD: Duration = Duration::from_millis(100);
const LENGTH: u64 = 1000;

/// Runs `solve`, which brings the residual down to `tolerance`, with a bar if standard error is a
/// terminal.
pub fn watched<T>(progress: &Progress, tolerance: f64, solve: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return solve();
    }
    let (over, when_over) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Made once there is something to wait for.
            let mut bar = None;
            while let Err(RecvTimeoutError::Timeout) = when_over.recv_timeout(PERIOD) {
                let bar = bar.get_or_insert_with(new_bar);
                let (iterations, residual) = progress.read();
                bar.set_message(format!("{iterations} iterations, residual {residual:.1e}"));
                bar.set_position(position(residual, tolerance));
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        });
        // Dropped at the end, and by a panic: the thread ends then.
        let _over = over;
        solve()
    })
}

fn new_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {msg}, {elapsed}");
    ProgressBar::new(LENGTH).with_style(style.expect("the template is well formed"))
}

/// How far it has come: residuals fall by a factor, rather than by an amount, in each iteration.
pub fn position(residual: f64, tolerance: f64) -> u64 {
    // Nothing has been said yet, or numbers are too small to be told from zero.
    if residual <= 0.0 {
        return 0;
    }
    let part = (residual.ln() / tolerance.ln()).clamp(0.0, 1.0);
    (part * LENGTH as f64).round() as u64
}
