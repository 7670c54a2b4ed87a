//! Files that are deleted or renamed, alone or by their name.

use super::super::super::checks::Known;
use super::Keeper;

impl Keeper {
    /// Draws a file whose upload has come to a known end.
    fn known(&mut self) -> Option<Known> {
        let known = self.application.state().checks.files.known();
        let index = self.application.random.index(known.len());
        known.into_iter().nth(index)
    }

    pub(super) async fn delete(&mut self) {
        let Some(known) = self.known() else { return };
        let terms = self.application.terms();
        let bucket = self.limited(terms);
        self.application.state().checks.files.deletes(known.number);
        let delete = async |_| bucket.delete(known.id).await;
        self.application.run(terms, delete).await.ok();
    }

    pub(super) async fn delete_by_name(&mut self) {
        let (name, terms) = (self.name(), self.application.terms());
        let bucket = self.limited(terms);
        self.application.state().checks.files.deletes_name(&name);
        let delete = async |_| bucket.delete_by_name(name).await;
        self.application.run(terms, delete).await.ok();
    }

    pub(super) async fn rename(&mut self) {
        let Some(known) = self.known() else { return };
        let (to, terms) = (self.name(), self.application.terms());
        let bucket = self.limited(terms);
        self.application.state().checks.files.renames(known.number, &to);
        let rename = async |_| bucket.rename(known.id, to).await;
        self.application.run(terms, rename).await.ok();
    }

    pub(super) async fn rename_by_name(&mut self) {
        let (from, to, terms) = (self.name(), self.name(), self.application.terms());
        let bucket = self.limited(terms);
        self.application.state().checks.files.renames_name(&from, &to);
        let rename = async |_| bucket.rename_by_name(from, to).await;
        self.application.run(terms, rename).await.ok();
    }
}
