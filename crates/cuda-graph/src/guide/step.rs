use cuda_graph::{FillOp, Recorder};

/// A first guess, and no turn yet.
fn start(r: &mut dyn Recorder, roots: &Roots) -> Result<()> {
    r.record(FillOp::new(&roots.x, 1.0)?)?;
    r.record(FillOp::new(&roots.turns, 0)?)?;
    Ok(())
}

/// One turn for all the roots.
fn turn(r: &mut dyn Recorder, kernels: &Kernels, roots: &Roots, limit: u32) -> Result<()> {
    r.record(kernels.improve(roots)?)?;
    r.record(kernels.decide(roots, limit)?)?;
    Ok(())
}
