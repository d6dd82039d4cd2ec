//! The shop whose prices the examples change: a SQLite database of its own, as a host has one already.
//!
//! Two things in it are worth copying. [`Shop::mark_down`] writes the plan token into a ledger in the SAME transaction as
//! the prices: that, and only that, makes the effect itself happen once. [`digest`] is over exactly the rows that a
//! preview showed, so that a plan made on old prices cannot run on new ones.
#![allow(dead_code, reason = "each example uses its own part")]

use std::path::Path;
use std::time::Duration;

use countersign::BoxError;
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde::{Deserialize, Serialize};

/// The catalogue that a new shop starts with.
const CATALOGUE: &str = include_str!("../data/products.csv");

/// One row of the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Product {
    pub(crate) sku: String,
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) price_cents: i64,
    pub(crate) stock: i64,
}

/// The payload of the tool `mark_down`: what the agent proposes, what the reviewer approves, and what runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MarkDown {
    pub(crate) category: String,
    pub(crate) percent: i64,
}

impl MarkDown {
    /// What [`Shop::mark_down`] makes of the product's price.
    pub(crate) fn new_price(&self, product: &Product) -> i64 {
        ((product.price_cents * (100 - self.percent) + 50) / 100).max(1)
    }
}

/// The shop's database.
pub(crate) struct Shop {
    connection: Connection,
}

impl Shop {
    /// Opens the shop, or makes it: whole, under another name first.
    pub(crate) fn open_or_create(path: &Path) -> Result<Self, BoxError> {
        if !path.exists() {
            let early = path.with_extension("new");
            drop(Self::create(&early)?);
            std::fs::rename(&early, path)?;
        }
        Self::open(path)
    }

    /// Makes a new shop and imports the catalogue.
    pub(crate) fn create(path: &Path) -> Result<Self, BoxError> {
        let mut shop = Self { connection: Connection::open(path)? };
        shop.connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE products (
               sku TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL,
               price_cents INTEGER NOT NULL CHECK (price_cents > 0), stock INTEGER NOT NULL CHECK (stock >= 0)
             ) STRICT;
             CREATE INDEX products_category ON products (category);
             CREATE TABLE ledger (plan_token TEXT NOT NULL PRIMARY KEY, changed INTEGER NOT NULL) STRICT;",
        )?;
        let import = shop.connection.transaction()?;
        for product in csv::Reader::from_reader(CATALOGUE.as_bytes()).deserialize() {
            let product: Product = product?;
            import.execute(
                "INSERT INTO products (sku, name, category, price_cents, stock) VALUES (?1, ?2, ?3, ?4, ?5)",
                (&product.sku, &product.name, &product.category, product.price_cents, product.stock),
            )?;
        }
        import.commit()?;
        Ok(shop)
    }

    /// Opens a shop that exists.
    pub(crate) fn open(path: &Path) -> Result<Self, BoxError> {
        let connection = Connection::open_with_flags(path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(Self { connection })
    }

    /// How many products there are, and in how many categories.
    pub(crate) fn size(&self) -> Result<(i64, i64), BoxError> {
        let sql = "SELECT count(*), count(DISTINCT category) FROM products";
        Ok(self.connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?)
    }

    /// What a mark-down of this category would touch.
    pub(crate) fn products(&self, category: &str) -> Result<Vec<Product>, BoxError> {
        let mut statement = self
            .connection
            .prepare("SELECT sku, name, category, price_cents, stock FROM products WHERE category = ?1 ORDER BY sku")?;
        let products = statement.query_map([category], |row| {
            Ok(Product {
                sku: row.get("sku")?,
                name: row.get("name")?,
                category: row.get("category")?,
                price_cents: row.get("price_cents")?,
                stock: row.get("stock")?,
            })
        })?;
        Ok(products.collect::<Result<_, _>>()?)
    }

    /// Marks a category down, at most once for each plan token. Answers how many prices it changed.
    pub(crate) fn mark_down(&mut self, plan_token: &str, change: &MarkDown) -> Result<i64, BoxError> {
        let transaction = self.connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        if let Some(changed) = receipt(&transaction, plan_token)? {
            return Ok(changed);
        }
        let changed = transaction.execute(
            "UPDATE products SET price_cents = max(1, (price_cents * (100 - :percent) + 50) / 100)
              WHERE category = :category",
            named_params! {":percent": change.percent, ":category": change.category},
        )?;
        let changed = i64::try_from(changed)?;
        transaction.execute("INSERT INTO ledger (plan_token, changed) VALUES (?1, ?2)", (plan_token, changed))?;
        transaction.commit()?;
        Ok(changed)
    }

    /// Whether the mark-down of this plan happened: what recovery asks after a crash.
    pub(crate) fn receipt(&self, plan_token: &str) -> Result<Option<i64>, BoxError> {
        Ok(receipt(&self.connection, plan_token)?)
    }

    /// A price change by somebody else, outside the gate.
    pub(crate) fn set_price(&self, sku: &str, price_cents: i64) -> Result<(), BoxError> {
        self.connection.execute("UPDATE products SET price_cents = ?2 WHERE sku = ?1", (sku, price_cents))?;
        Ok(())
    }
}

fn receipt(connection: &Connection, plan_token: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT changed FROM ledger WHERE plan_token = ?1";
    connection.query_row(sql, [plan_token], |row| row.get(0)).optional()
}

/// A digest of what a preview looked at.
pub(crate) fn digest(products: &[Product]) -> Result<String, BoxError> {
    Ok(countersign::fingerprint(products)?.to_string())
}
