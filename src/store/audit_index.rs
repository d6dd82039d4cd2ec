//! The opt-in indexes for heavy auditing: see `audit_index.sql`.

/// The file's statements, each a `CREATE INDEX IF NOT EXISTS`.
const FILE: &str = include_str!("audit_index.sql");

const CREATE: &str = "CREATE INDEX IF NOT EXISTS ";

/// (name, statement) of each index.
pub(super) fn indexes() -> impl Iterator<Item = (&'static str, &'static str)> {
    FILE.split(';').filter_map(|piece| {
        let statement = &piece[piece.find(CREATE)?..];
        let name = statement[CREATE.len()..].split(' ').next()?;
        Some((name, statement))
    })
}

#[cfg(test)]
mod tests {
    use super::{CREATE, FILE, indexes};

    #[test]
    fn every_index_of_the_file_is_found_and_named_for_what_it_is() {
        let names: Vec<_> = indexes().map(|(name, _)| name).collect();
        assert_eq!(names.len(), FILE.matches(CREATE).count());
        assert!(names.len() >= 5 && names.iter().all(|name| name.starts_with("audit_events_by_")), "{names:?}");
    }
}
