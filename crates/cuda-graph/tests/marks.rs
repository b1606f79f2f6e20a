#[path = "it/door.rs"]
mod door;
#[path = "it/fixture.rs"]
mod fixture;
#[path = "it/replay/mod.rs"]
mod replay;
