//! The events that are reported, over a bounded channel.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use tokio::sync::mpsc;

use crate::news;

/// The number of events that may wait to be printed; only the count of further ones is reported.
const MAX_WAITING: usize = 1024;

/// Something to report. Members are called what they advertise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub(super) enum News {
    /// Clients may connect.
    Ready {
        /// By this connection string.
        uri: String,
        /// The local address of each member.
        members: BTreeMap<String, String>,
        /// The lines that `/etc/hosts` needs, if TLS is passed on.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        hosts: Vec<String>,
    },
    /// A member has got its local address.
    Opened { member: String, address: String },
    /// A member has got none.
    NotOpened { member: String, reason: String },
    /// A server has become a member.
    Joined {
        /// By what it advertises.
        member: String,
        /// Its local address.
        address: String,
        /// The line that `/etc/hosts` needs besides, if it is a new one.
        #[serde(skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// A server is no member any more.
    Left { member: String },
    /// A member has become primary.
    Primary {
        /// By what it advertises.
        member: String,
        /// Its local address, if it has one.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// There is no primary any more.
    NoPrimary,
    /// A client's connection was closed, as its member cannot be reached.
    Unreachable { member: String, reason: String },
    /// The member can be reached again.
    Reachable { member: String },
    /// A client's connection was closed, as one of both sides made no sense.
    Refused { client: String, member: String, reason: String },
    /// A connection cannot be accepted now.
    NotAccepted { member: String, reason: String },
    /// ssh says something.
    Ssh { said: String },
    /// ssh has ended, and is started again after a while.
    SshEnded { reason: String, again: String },
    /// ssh listens again.
    SshBack,
    /// Events that came too fast.
    Lost { count: u64 },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { uri, .. } => f.write_str(uri),
            Self::Opened { member, address } => write!(f, "{member} is {address}"),
            Self::NotOpened { member, reason } => write!(f, "{member} has no port: {reason}"),
            Self::Joined { member, address, .. } => write!(f, "{member} has joined, at {address}"),
            Self::Left { member } => write!(f, "{member} has left; its port stays"),
            Self::Primary { member, address: Some(address) } => {
                write!(f, "{member} is primary, at {address}")
            }
            Self::Primary { member, address: None } => {
                write!(f, "{member} is primary, and has no port")
            }
            Self::NoPrimary => f.write_str("there is no primary"),
            Self::Unreachable { member, reason } => {
                write!(f, "{member} cannot be reached: {reason}")
            }
            Self::Reachable { member } => write!(f, "{member} can be reached again"),
            Self::Refused { client, member, reason } => {
                write!(f, "{client} is cut off from {member}: {reason}")
            }
            Self::NotAccepted { member, reason } => {
                write!(f, "no more connections to {member} for now: {reason}")
            }
            Self::Ssh { said } => write!(f, "ssh: {said}"),
            Self::SshEnded { reason, again } => {
                write!(f, "ssh {reason}; it is started again in {again}")
            }
            Self::SshBack => f.write_str("ssh is there again"),
            Self::Lost { count } => write!(f, "{count} events came too fast to be reported"),
        }
    }
}

/// Sends news from wherever they happen; it never waits.
#[derive(Clone, Debug)]
pub(super) struct NewsSender {
    news: mpsc::Sender<News>,
    lost: Arc<AtomicU64>,
}

/// The receiving end of news.
#[derive(Debug)]
pub(super) struct NewsReceiver {
    news: mpsc::Receiver<News>,
    lost: Arc<AtomicU64>,
}

/// Connects what happens with what is printed.
pub(super) fn channel() -> (NewsSender, NewsReceiver) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let lost = Arc::<AtomicU64>::default();
    (NewsSender { news: sender, lost: Arc::clone(&lost) }, NewsReceiver { news: receiver, lost })
}

impl NewsSender {
    /// Reports something, unless too much waits to be printed; then it is counted.
    pub(super) fn send(&self, news: News) {
        if self.news.try_send(news).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl NewsReceiver {
    /// Waits for the next news; cancelling the wait loses nothing.
    pub(super) async fn next(&mut self) -> News {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => match self.news.recv().await {
                Some(news) => news,
                None => std::future::pending().await,
            },
            count => News::Lost { count },
        }
    }

    /// Returns news that are there already.
    pub(super) fn try_next(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl news::News for News {
    fn first_line(&self) -> Option<String> {
        match self {
            Self::Ready { uri, .. } => Some(uri.clone()),
            _ => None,
        }
    }

    fn lines(&self) -> Vec<String> {
        match self {
            Self::Ready { members, hosts, .. } => {
                let members = members.iter().map(|(member, at)| format!("{member} is {at}"));
                let members = members.collect::<Vec<_>>().join(", ");
                std::iter::once(members).chain(hosts.iter().map(needed)).collect()
            }
            Self::Joined { host: Some(line), .. } => vec![self.to_string(), needed(line)],
            news => vec![news.to_string()],
        }
    }
}

fn needed(line: &String) -> String {
    format!("/etc/hosts needs: {line}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::{MAX_WAITING, News, channel};
    use crate::news::Report;

    fn ready() -> News {
        let members = ["a:1", "b:2"].into_iter().zip(["127.0.0.1:3", "127.0.0.1:4"]);
        let members: BTreeMap<_, _> =
            members.map(|(member, at)| (member.to_owned(), at.to_owned())).collect();
        News::Ready { uri: "mongodb://127.0.0.1:3/".to_owned(), members, hosts: Vec::new() }
    }

    fn printed(json: bool, news: &[News]) -> String {
        let mut out = Vec::new();
        let mut report = Report::new(&mut out, json, false);
        news.iter().for_each(|it| report.print(Duration::from_millis(1500), it).unwrap());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_first_line_is_the_connection_string() {
        let left = News::Left { member: "b\u{1b}:2".to_owned() };
        let expected = [
            "mongodb://127.0.0.1:3/\n",
            "    1.50s  a:1 is 127.0.0.1:3, b:2 is 127.0.0.1:4\n",
            "    1.50s  b\\u{1b}:2 has left; its port stays\n",
        ];
        assert_eq!(printed(false, &[ready(), left]), expected.concat());
    }

    #[test]
    fn a_member_that_joins_may_need_a_line_in_a_file() {
        let (member, address) = ("db4:27017".to_owned(), "127.0.0.5:27017".to_owned());
        let host = Some("127.0.0.5 db4".to_owned());
        let expected = [
            "    1.50s  db4:27017 has joined, at 127.0.0.5:27017\n",
            "    1.50s  /etc/hosts needs: 127.0.0.5 db4\n",
        ];
        let joined = News::Joined { member, address, host };
        assert_eq!(printed(false, &[joined]), expected.concat());
    }

    #[test]
    fn json_has_an_object_a_line() {
        let unreachable = News::Unreachable { member: "a:1".to_owned(), reason: "no".to_owned() };
        let expected = [
            r#"{"elapsedMs":1500.0,"event":"ready","uri":"mongodb://127.0.0.1:3/","#,
            r#""members":{"a:1":"127.0.0.1:3","b:2":"127.0.0.1:4"}}"#,
            "\n",
            r#"{"elapsedMs":1500.0,"event":"unreachable","member":"a:1","reason":"no"}"#,
            "\n",
        ];
        assert_eq!(printed(true, &[ready(), unreachable]), expected.concat());
    }

    #[tokio::test]
    async fn news_that_are_not_printed_are_counted() {
        let (sender, mut receiver) = channel();
        (0..MAX_WAITING + 3).for_each(|_| sender.send(News::SshBack));
        assert_eq!(receiver.next().await, News::Lost { count: 3 });
        assert_eq!(receiver.next().await, News::SshBack);
        while receiver.try_next().is_some() {}
        sender.send(News::NoPrimary);
        assert_eq!(receiver.next().await, News::NoPrimary);
    }
}
