//! A check that was left alone: in the single-threaded mode nobody reads its reply between calls,
//! so that how long that has taken says nothing of the round trip time.

use super::conversation::Conversation;
use super::{Context, Monitor, Phase};

impl Monitor {
    /// The reply that is due may have come a while before it is read.
    pub(crate) fn leave_alone(&mut self) {
        self.conversation.iter_mut().for_each(Conversation::leave_alone);
    }

    /// Asks once more, with all the time that a check has, if a reply comes to one that was left
    /// alone; returns whether it does.
    pub(super) fn asks_anew(&mut self, ctx: &mut Context<'_>) -> bool {
        let asks = self.conversation.as_mut().is_some_and(|asked| asked.asks_anew(ctx));
        if asks && let Phase::Checking { deadline, .. } = &mut self.phase {
            *deadline = ctx.connect_deadline();
        }
        asks
    }
}
