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
    /// alone, or when somebody waits again; returns whether the reply is void.
    pub(super) fn asks_anew(&mut self, ctx: &mut Context<'_>) -> bool {
        let is_void = self.conversation.as_mut().is_some_and(|asked| asked.asks_anew(ctx));
        if is_void && let Phase::Checking { deadline, .. } = &mut self.phase {
            *deadline = ctx.connect_deadline().filter(|_| ctx.attended);
        }
        is_void
    }

    /// Somebody waits again: what was to be asked once more is asked.
    pub(crate) fn attend(&mut self, ctx: &mut Context<'_>) {
        if !self.is_sleeping() && self.conversation.as_ref().is_some_and(Conversation::is_void) {
            self.asks_anew(ctx);
        }
    }
}
