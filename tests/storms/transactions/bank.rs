//! A bank: transfers between accounts, and audits, to which the sum is always the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sdam::options::{ReadConcern, WriteConcern};
use sdam::{Client, ClientSession, Collection, doc};
use sdam_core::rng::Rng;
use sdam_simulation::histories::Outcome;
use serde::{Deserialize, Serialize};

use super::attempts::{Failure, Notes, Patience, Ran, Refusal, lock, run};
use super::{Application, Resolved};

const ACCOUNTS: i64 = 8;
const BALANCE: i64 = 100;

/// The most that is transferred at once: enough for some accounts to have too little now and then.
const MOST: u64 = 60;

#[derive(Debug, Serialize, Deserialize)]
struct Account {
    #[serde(rename = "_id")]
    id: i64,
    balance: i64,
}

/// A transfer, which leaves a document of its own: one for each attempt that was committed.
#[derive(Debug, Serialize, Deserialize)]
struct Transfer {
    #[serde(rename = "_id")]
    attempt: i64,
    from: i64,
    to: i64,
    amount: i64,
}

/// The accounts, with what clients know of the attempts to transfer something.
pub(super) struct Bank {
    client: Client,
    accounts: Collection<Account>,
    transfers: Collection<Transfer>,
    outcomes: Mutex<Vec<Outcome>>,
}

impl Notes for Mutex<Vec<Outcome>> {
    fn begin(&self) -> usize {
        let mut outcomes = lock(self);
        outcomes.push(Outcome::Unknown);
        outcomes.len() - 1
    }

    fn end(&self, attempt: usize, outcome: Outcome) {
        lock(self)[attempt] = outcome;
    }
}

impl Bank {
    pub(super) async fn open(client: &Client) -> sdam::Result<Self> {
        let database = client.database("storm_bank");
        database.drop().await?;
        let (accounts, transfers) = (database.collection("accounts"), database.collection("made"));
        let all = (0..ACCOUNTS).map(|id| Account { id, balance: BALANCE });
        accounts.insert_many(all).write_concern(WriteConcern::majority()).await?;
        database.create_collection("made").write_concern(WriteConcern::majority()).await?;
        Ok(Self { client: client.clone(), accounts, transfers, outcomes: Mutex::default() })
    }

    /// Makes a transfer within a transaction, unless the account has too little: that is noticed
    /// when it has been written already.
    async fn transfer(&self, session: &ClientSession, transfer: &Transfer) -> Result<(), Refusal> {
        let &Transfer { from, to, amount, .. } = transfer;
        let accounts = self.accounts.with_session(session);
        self.transfers.insert_one(transfer).session(session).await?;
        let take = doc! { "$inc": { "balance": -amount } };
        accounts.update_one(doc! { "_id": from }, take).await?;
        let left = accounts.find_one(doc! { "_id": from }).await?;
        if left.is_none_or(|account| account.balance < 0) {
            return Err(Refusal::Declined);
        }
        let give = doc! { "$inc": { "balance": amount } };
        accounts.update_one(doc! { "_id": to }, give).await?;
        Ok(())
    }

    /// Adds up all accounts, in several batches.
    async fn audit(&self, session: &ClientSession) -> Result<(), Refusal> {
        let mut found = self.accounts.find(doc! {}).batch_size(3).session(session).await?;
        let (mut count, mut sum) = (0, 0);
        while let Some(account) = found.try_next().await? {
            (count, sum) = (count + 1, sum + account.balance);
        }
        match (count, sum) == (ACCOUNTS, ACCOUNTS * BALANCE) {
            true => Ok(()),
            false => Err(Refusal::Wrong(format!("the sum of {count} accounts is {sum}"))),
        }
    }

    /// Returns what there is at the end, when no transfer is under way any more: this transaction
    /// writes to all accounts, which no other one can have written to meanwhile.
    async fn end(&self) -> sdam::Result<(Vec<Account>, Vec<Transfer>)> {
        let session = self.client.start_session().await?;
        let whole = session.start_transaction().read_concern(ReadConcern::snapshot());
        whole
            .write_concern(WriteConcern::majority())
            .and_run(async |session| {
                let close = doc! { "$set": { "closed": true } };
                self.accounts.update_many(doc! {}, close).session(&session).await?;
                let mut accounts = self.accounts.find(doc! {}).session(&session).await?;
                let mut transfers = self.transfers.find(doc! {}).session(&session).await?;
                let (mut closed, mut made) = (Vec::new(), Vec::new());
                while let Some(account) = accounts.try_next().await? {
                    closed.push(account);
                }
                while let Some(transfer) = transfers.try_next().await? {
                    made.push(transfer);
                }
                Ok::<_, sdam::Error>((closed, made))
            })
            .await
    }

    /// Checks that each transfer that was acknowledged is there, that none is there that was
    /// aborted, and that all that are there are there whole; says what those were whose outcome is
    /// unknown.
    pub(super) async fn check(&self) -> Result<Resolved, Failure> {
        let (accounts, transfers) = self.end().await?;
        let mut balances: BTreeMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, BALANCE)).collect();
        let outcomes = lock(&self.outcomes);
        let mut is_there = vec![false; outcomes.len()];
        for Transfer { attempt, from, to, amount } in transfers {
            let number = usize::try_from(attempt)?;
            match outcomes.get(number) {
                Some(Outcome::Committed | Outcome::Unknown) => is_there[number] = true,
                other => {
                    return Err(format!("transfer {attempt} is there, and was {other:?}").into());
                }
            }
            *balances.entry(from).or_default() -= amount;
            *balances.entry(to).or_default() += amount;
        }
        let found: BTreeMap<i64, i64> = accounts.iter().map(|it| (it.id, it.balance)).collect();
        if found != balances {
            return Err(format!("accounts are {found:?}, by their transfers {balances:?}").into());
        }
        let mut resolved = Resolved::default();
        for (number, (outcome, is_there)) in outcomes.iter().zip(is_there).enumerate() {
            match outcome {
                Outcome::Committed if !is_there => {
                    return Err(format!("transfer {number} was acknowledged, and is lost").into());
                }
                Outcome::Committed | Outcome::Aborted => {}
                Outcome::Unknown => resolved.note(is_there),
            }
        }
        Ok(resolved)
    }
}

/// Transfers of one teller.
impl Application for Bank {
    async fn once(&self, rng: &mut Rng) -> Result<Ran, Failure> {
        let manner = (Patience::draw(rng), ReadConcern::snapshot());
        let account = |bits: u64| (bits % ACCOUNTS.unsigned_abs()).cast_signed();
        let (from, to) = (account(rng.next_u64()), account(rng.next_u64()));
        let amount = (rng.next_u64() % MOST).cast_signed() + 1;
        run(&self.client, manner, &self.outcomes, async |session, attempt| {
            let attempt = i64::try_from(attempt).expect("few attempts");
            self.transfer(&session, &Transfer { attempt, from, to, amount }).await
        })
        .await
    }
}

/// Audits of a bank.
pub(super) struct Audits(pub(super) Arc<Bank>);

impl Application for Audits {
    async fn once(&self, rng: &mut Rng) -> Result<Ran, Failure> {
        let concern = match rng.next_u64() % 2 {
            0 => ReadConcern::snapshot(),
            _ => ReadConcern::majority(),
        };
        let manner = (Patience::Full, concern);
        run(&self.0.client, manner, &(), async |session, _| self.0.audit(&session).await).await
    }
}
