//! What launches heed of others in their context.

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::turns::Turns;
use crate::Result;
use crate::retain::Meeting;

/// Those that launches of an executable wait for, or that wait for them.
pub(super) struct Others {
    /// Those with loops, if it has any and takes turns.
    turns: Option<Arc<Turns>>,
    /// Ranks of this process.
    meeting: Option<Meeting>,
}

impl Others {
    /// None if there are none.
    pub(super) fn of(turns: Option<Arc<Turns>>, meeting: Option<Meeting>) -> Option<Arc<Others>> {
        let any = turns.is_some() || meeting.is_some();
        any.then(|| Arc::new(Others { turns, meeting }))
    }

    /// Makes a launch in `stream`.
    pub(super) fn launch(
        &self,
        stream: &CudaStream,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let launch = || match &self.meeting {
            None => launch(),
            Some(meeting) => meeting.launch(stream, launch),
        };
        match &self.turns {
            None => launch(),
            Some(turns) => turns.take(stream, launch),
        }
    }
}
