//! A replica set: several servers, one of them primary, and what a test does to them.

use std::thread;
use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::config::ServerAddress;

use super::error::poll;
use super::hello::{find_primary, follows, is, op_time};
use super::{Binary, CommandError, HarnessError, Member, Options, Server, sync_source};

/// The time that a change to the set may take until all members have settled.
pub(super) const SETTLE_LIMIT: Duration = Duration::from_secs(60);

/// The time that a command that changes the set may take.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

const NO_PRIMARY: &str = "no member claims to be primary";

/// The time that a primary that stepped down stays out of elections, in seconds.
const STEP_DOWN_SECS: i32 = 10;

/// The time that a primary waits before it steps down for another member to catch up, in seconds.
const CATCH_UP_SECS: i32 = 2;

/// The error of a primary that does not step down, as no other member has caught up.
const EXCEEDED_TIME_LIMIT: i32 = 262;

/// The errors of a server that is not, or not any more, a primary: NotWritablePrimary,
/// PrimarySteppedDown, InterruptedDueToReplStateChange.
const NOT_PRIMARY: [i32; 3] = [10107, 189, 11602];

/// A replica set of servers on this machine.
///
/// The index of a member is its place in [`members`](Self::members).
#[derive(Debug)]
pub struct ReplicaSet {
    binary: Binary,
    options: Options,
    pub(super) members: Vec<Server>,
    /// The `_id` of the next member to be added; the server wants each only once.
    next_id: i32,
}

impl ReplicaSet {
    /// Starts a set of equal members, and waits until it has a primary and all others follow it.
    ///
    /// # Errors
    ///
    /// Says which step failed.
    pub fn start(binary: &Binary, members: usize, options: &Options) -> Result<Self, HarnessError> {
        Self::start_with(binary, &vec![Member::default(); members], options)
    }

    /// Starts a set of members that differ, and waits until it has settled.
    ///
    /// # Errors
    ///
    /// Says which step failed; [`CommandError::Refused`] if the server does not take this
    /// configuration.
    ///
    /// # Panics
    ///
    /// Panics if no member can become primary.
    pub fn start_with(
        binary: &Binary,
        members: &[Member],
        options: &Options,
    ) -> Result<Self, HarnessError> {
        let first = members
            .iter()
            .position(Member::is_electable)
            .expect("a replica set needs a member that can become primary");
        let servers = thread::scope(|scope| {
            let start = |id| move || Server::start(binary, options.config(id));
            let starts: Vec<_> = (0..members.len()).map(|id| scope.spawn(start(id))).collect();
            starts
                .into_iter()
                .map(|start| start.join().expect("starting a server does not panic"))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let documents: Vec<Document> = (0..)
            .zip(members.iter().zip(&servers))
            .map(|(id, (member, server))| {
                member.document(id, &server.advertised(), binary.version())
            })
            .collect();
        let set = Self {
            binary: binary.clone(),
            options: options.clone(),
            next_id: i32::try_from(documents.len()).expect("few members"),
            members: servers,
        };
        let config = doc! {
            "_id": &options.set_name, "version": 1,
            "members": documents, "settings": options.settings(),
        };
        set.initiate(first, &config)?;
        Ok(set)
    }

    /// Makes the servers a replica set with `first` as its primary.
    fn initiate(&self, first: usize, config: &Document) -> Result<(), HarnessError> {
        let (first, others) = {
            let mut others: Vec<&Server> = self.members.iter().collect();
            (others.swap_remove(first), others)
        };
        for other in &others {
            sync_source::force(other, &first.advertised())?;
        }
        first.command(&doc! { "replSetInitiate": config }, COMMAND_LIMIT)?;
        // Left to itself it would wait for the election timeout.
        step_up(first)?;
        self.wait_until_settled(SETTLE_LIMIT)?;
        others.into_iter().try_for_each(sync_source::release)?;
        self.wait_until_committed()
    }

    /// Has a member become primary, which others may be then.
    ///
    /// # Errors
    ///
    /// Says why it has not been elected.
    ///
    /// # Panics
    ///
    /// Panics if there is no such member.
    pub fn step_up(&self, index: usize) -> Result<(), HarnessError> {
        step_up(&self.members[index])
    }

    /// Returns the name of the set.
    pub fn set_name(&self) -> &str {
        &self.options.set_name
    }

    /// Returns the servers, whatever state they are in.
    pub fn members(&self) -> &[Server] {
        &self.members
    }

    /// Returns the addresses of all members, as they advertise them.
    pub fn seed_list(&self) -> Vec<ServerAddress> {
        self.members.iter().map(Server::advertised).collect()
    }

    /// Asks the running members and returns the index of the primary.
    ///
    /// If two members claim the role, the one that was elected later is believed.
    ///
    /// # Errors
    ///
    /// [`HarnessError::TimedOut`] if there is none at the moment.
    pub fn primary(&self) -> Result<usize, HarnessError> {
        self.wait_for_primary(Duration::ZERO)
    }

    /// Waits until a running member is primary, and returns its index.
    ///
    /// # Errors
    ///
    /// [`HarnessError::TimedOut`] if there is none within `limit`.
    pub fn wait_for_primary(&self, limit: Duration) -> Result<usize, HarnessError> {
        poll("a primary", limit, || {
            find_primary(&self.hellos()).ok_or_else(|| NO_PRIMARY.to_owned())
        })
    }

    /// Waits until there is a primary and every other running member is secondary or arbiter.
    ///
    /// # Errors
    ///
    /// [`HarnessError::TimedOut`] if that is not so within `limit`.
    pub fn wait_until_settled(&self, limit: Duration) -> Result<(), HarnessError> {
        poll("a settled replica set", limit, || {
            let hellos = self.hellos();
            let primary = find_primary(&hellos).ok_or(NO_PRIMARY)?;
            for (index, hello) in hellos.iter().enumerate() {
                let server = &self.members[index];
                match hello {
                    Ok(hello) if index == primary || follows(hello) => {}
                    Ok(hello) => return Err(format!("member {index} does not follow: {hello}")),
                    Err(_) if !server.is_running() => {}
                    Err(error) => return Err(format!("{error}; log:\n{}", server.log_tail())),
                }
            }
            Ok(())
        })
    }

    /// Waits until every running member knows that a majority has all that the primary wrote, but
    /// for those that are behind on purpose.
    ///
    /// A member that never knew so much cannot roll back: frozen at that moment, or cut off, it
    /// aborts when it comes back and finds another primary.
    pub(super) fn wait_until_committed(&self) -> Result<(), HarnessError> {
        poll("a majority to commit", SETTLE_LIMIT, || {
            let hellos = self.hellos();
            let primary = find_primary(&hellos).ok_or(NO_PRIMARY)?;
            let written = hellos[primary].as_ref().map(|hello| op_time(hello, "opTime"));
            let written = written.map_err(ToString::to_string)?;
            let knows = |hello: &Document| {
                let committed = op_time(hello, "majorityOpTime");
                let is_delayed = ["slaveDelay", "secondaryDelaySecs"].map(|it| hello.get(it));
                is(hello, "arbiterOnly")
                    || is_delayed.iter().any(Option::is_some)
                    || (committed.is_some() && committed >= written)
            };
            match hellos.iter().flatten().find(|hello| !knows(hello)) {
                None => Ok(()),
                Some(hello) => Err(format!("{written:?} was written, here less is known: {hello}")),
            }
        })
    }

    /// Makes the primary step down, and returns without waiting for the next one.
    ///
    /// The primary hands over to a member that has caught up, which is elected at once; where there
    /// is none, it is forced, and the others wait for the election timeout. It stays out of
    /// elections for ten seconds.
    ///
    /// # Errors
    ///
    /// Fails if there is no primary, or if it refuses although it is one.
    pub fn step_down(&self) -> Result<(), HarnessError> {
        let primary = &self.members[self.wait_for_primary(SETTLE_LIMIT)?];
        match step_down(primary, false) {
            Err(CommandError::Refused { code, .. }) if code == EXCEEDED_TIME_LIMIT => {
                step_down(primary, true)?;
            }
            result => result?,
        }
        Ok(())
    }

    /// Kills a member, see [`Server::kill`].
    ///
    /// # Errors
    ///
    /// [`HarnessError::Io`] if the operating system refuses.
    ///
    /// # Panics
    ///
    /// Panics if there is no member `index`; so do all methods that take one.
    pub fn kill(&mut self, index: usize) -> Result<(), HarnessError> {
        self.members[index].kill()
    }

    /// Starts a member again, see [`Server::restart`]; it does not wait until the member follows.
    ///
    /// # Errors
    ///
    /// As those of [`Server::start`].
    pub fn restart(&mut self, index: usize) -> Result<(), HarnessError> {
        self.members[index].restart()
    }

    /// Freezes a member, see [`Server::freeze`].
    ///
    /// # Errors
    ///
    /// [`HarnessError::Io`] if the process is not there.
    pub fn freeze(&mut self, index: usize) -> Result<(), HarnessError> {
        self.members[index].freeze()
    }

    /// Lets a frozen member go on, see [`Server::thaw`].
    ///
    /// # Errors
    ///
    /// [`HarnessError::Io`] if the process is not there.
    pub fn thaw(&mut self, index: usize) -> Result<(), HarnessError> {
        self.members[index].thaw()
    }

    /// Starts another server, adds it to the set, and waits until it follows; it comes last in
    /// [`members`](Self::members).
    ///
    /// # Errors
    ///
    /// Says which step failed.
    pub fn add_member(&mut self, member: &Member) -> Result<(), HarnessError> {
        let primary = &self.members[self.wait_for_primary(SETTLE_LIMIT)?];
        if member.arbiter_only && self.binary.version().major >= 5 {
            // Else refused, as an arbiter may change what an unspecified write concern means.
            let write_concern = doc! { "w": 1 };
            let command = doc! { "setDefaultRWConcern": 1, "defaultWriteConcern": write_concern };
            primary.command(&command, COMMAND_LIMIT)?;
        }
        let index = usize::try_from(self.next_id).expect("ids count up from 0");
        let server = Server::start(&self.binary, self.options.config(index))?;
        sync_source::force(&server, &primary.advertised())?;
        let document = member.document(self.next_id, &server.advertised(), self.binary.version());
        self.reconfigure(&server.advertised().to_string(), Some(&document))?;
        self.next_id += 1;
        self.members.push(server);
        self.wait_until_settled(SETTLE_LIMIT)?;
        sync_source::release(self.members.last().expect("it was just added"))?;
        self.wait_until_no_member_is_new()?;
        self.wait_until_committed()
    }

    /// Takes a member out of the set and hands over its server, which goes on running.
    ///
    /// A primary steps down first. The members behind it move up by one.
    ///
    /// # Errors
    ///
    /// Says which step failed.
    pub fn remove_member(&mut self, index: usize) -> Result<Server, HarnessError> {
        if self.wait_for_primary(SETTLE_LIMIT)? == index {
            self.step_down()?;
        }
        self.reconfigure(&self.members[index].advertised().to_string(), None)?;
        Ok(self.members.remove(index))
    }

    /// Has the primary take the member `host` out of the configuration or put `replacement` there.
    ///
    /// A refusal may be over in a moment: an election, a change that is not committed yet, or one
    /// that the servers make themselves. So it tries until the time is up.
    fn reconfigure(&self, host: &str, replacement: Option<&Document>) -> Result<(), HarnessError> {
        poll("a new configuration", COMMAND_LIMIT, || {
            let primary = find_primary(&self.hellos()).ok_or(NO_PRIMARY)?;
            let primary = &self.members[primary];
            let mut config = configuration(primary, &doc! { "replSetGetConfig": 1 })?;
            let text = |error: bson::error::Error| error.to_string();
            let version = config.get_i32("version").map_err(text)?;
            config.insert("version", version + 1);
            let members = config.get_array_mut("members").map_err(text)?;
            members.retain(|member| host_of(member) != Some(host));
            members.extend(replacement.cloned().map(Bson::Document));
            primary
                .command(&doc! { "replSetReconfig": config }, COMMAND_LIMIT)
                .map_err(|error| error.to_string())
        })?;
        Ok(())
    }

    /// Waits until the servers have given a new member its vote.
    ///
    /// Since 5.0 they do so by a change of their own once it has its data, which would otherwise
    /// come at any moment and change `setVersion` in the middle of a test.
    fn wait_until_no_member_is_new(&self) -> Result<(), HarnessError> {
        if self.binary.version().major < 5 {
            return Ok(());
        }
        let question = doc! { "replSetGetConfig": 1, "$_internalIncludeNewlyAdded": true };
        poll("the vote of a new member", SETTLE_LIMIT, || {
            let primary = find_primary(&self.hellos()).ok_or(NO_PRIMARY)?;
            let config = configuration(&self.members[primary], &question)?;
            match config.to_string().contains("newlyAdded") {
                true => Err(config.to_string()),
                false => Ok(()),
            }
        })
    }

    /// Asks all members at once; those that are not running are not asked.
    fn hellos(&self) -> Vec<Result<Document, String>> {
        let ask = |server: &Server| match server.is_running() {
            true => server.hello().map_err(|error| error.to_string()),
            false => Err("the test has killed or frozen it".to_owned()),
        };
        thread::scope(|scope| {
            let members = self.members.iter();
            let questions: Vec<_> = members.map(|m| scope.spawn(move || ask(m))).collect();
            questions
                .into_iter()
                .map(|question| question.join().expect("asking does not panic"))
                .collect()
        })
    }
}

/// Asks a member for the configuration of the set.
fn configuration(server: &Server, question: &Document) -> Result<Document, String> {
    let reply = server.command(question, COMMAND_LIMIT);
    let reply = reply.map_err(|error| error.to_string())?;
    let config = reply.get_document("config");
    config.cloned().map_err(|error| error.to_string())
}

fn host_of(member: &Bson) -> Option<&str> {
    member.as_document()?.get_str("host").ok()
}

/// Makes a primary step down; that it is none any more is a success.
fn step_down(primary: &Server, force: bool) -> Result<(), CommandError> {
    let command = doc! {
        "replSetStepDown": STEP_DOWN_SECS, "secondaryCatchUpPeriodSecs": CATCH_UP_SECS,
        "force": force,
    };
    match primary.command(&command, COMMAND_LIMIT) {
        // Some versions close the connection instead of answering.
        Ok(_) | Err(CommandError::Io { .. }) => Ok(()),
        Err(CommandError::Refused { code, .. }) if NOT_PRIMARY.contains(&code) => Ok(()),
        Err(error) => Err(error),
    }
}

fn step_up(member: &Server) -> Result<(), HarnessError> {
    poll("an election", SETTLE_LIMIT, || {
        let step_up = member.command(&doc! { "replSetStepUp": 1 }, COMMAND_LIMIT);
        step_up.map(drop).map_err(|error| error.to_string())
    })
}
