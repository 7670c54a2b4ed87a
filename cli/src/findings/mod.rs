//! The kit of the commands that judge: `check-log`, `doctor` and `lint`.
//!
//! Each of them gathers evidence of its own, and judges that by rules of its own. What they have in
//! common is here: a rule with the place where it is written, and what breaks one (`rule`), and the
//! weight of what is found (`severity`).

mod rule;
mod severity;

pub(crate) use self::rule::{Allowed, Breach, Law, Rule, allow, named, print_allowed};
pub(crate) use self::severity::Severity;
