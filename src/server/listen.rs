//! The listener: connections with deadlines, and a bound on them that idle ones cannot use up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::store::lock;

/// How many connections are open at once.
const CONNECTIONS_MAX: usize = 256;
/// How long a client may take to send the head of a request, and how long a connection may idle between two.
const HEAD_DEADLINE: Duration = Duration::from_secs(15);
/// How long open requests may go on after the close.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// A connection, as the guard sees it: one that carried a token is a guest, any other can be shown out.
#[derive(Clone)]
pub(super) struct Visitor(Arc<Place>);

struct Place {
    guest: AtomicBool,
    out: Notify,
}

impl Visitor {
    pub(super) fn welcome(&self) {
        self.0.guest.store(true, Ordering::Relaxed);
    }
}

/// The open connections, oldest first.
#[derive(Clone, Default)]
struct Door(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    newest: u64,
    places: BTreeMap<u64, Arc<Place>>,
}

impl Door {
    /// A place for one more. Where all are taken, the oldest without a token goes; `None`: all carry one.
    fn enter(&self) -> Option<(u64, Visitor)> {
        let mut inside = lock(&self.0);
        if inside.places.len() >= CONNECTIONS_MAX {
            let oldest =
                inside.places.iter().find(|(_, place)| !place.guest.load(Ordering::Relaxed)).map(|(&id, _)| id)?;
            if let Some(place) = inside.places.remove(&oldest) {
                place.out.notify_one();
            }
        }
        inside.newest += 1;
        let id = inside.newest;
        let place = Arc::new(Place { guest: AtomicBool::new(false), out: Notify::new() });
        inside.places.insert(id, place.clone());
        Some((id, Visitor(place)))
    }

    fn leave(&self, id: u64) {
        lock(&self.0).places.remove(&id);
    }
}

/// Serves until `closing` turns true, then lets open requests end, within a deadline.
pub(super) async fn serve(listener: TcpListener, router: Router, mut closing: watch::Receiver<bool>) {
    let door = Door::default();
    let mut open = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            _ = closing.changed() => break,
            Some(_) = open.join_next(), if !open.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if let Some((id, visitor)) = door.enter() {
                        let (router, door, closing) = (router.clone(), door.clone(), closing.clone());
                        open.spawn(async move {
                            converse(stream, router, visitor, closing).await;
                            door.leave(id);
                        });
                    }
                }
                // Out of descriptors, most likely: others will be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
    drop(listener);
    let all_ended = async { while open.join_next().await.is_some() {} };
    // What is still open after the deadline is cut off when the set goes.
    let _ = tokio::time::timeout(CLOSE_DEADLINE, all_ended).await;
}

async fn converse(stream: TcpStream, router: Router, visitor: Visitor, mut closing: watch::Receiver<bool>) {
    let place = visitor.0.clone();
    let router = router.layer(axum::Extension(visitor));
    let mut connection = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_DEADLINE)
            .max_buf_size(64 * 1024)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
    );
    let closed = async {
        // An error says that the handle is gone, which is a close too.
        let _ = closing.wait_for(|closing| *closing).await;
    };
    let ended = tokio::select! {
        _ = connection.as_mut() => true,
        () = place.out.notified() => true,
        () = closed => false,
    };
    if !ended {
        connection.as_mut().graceful_shutdown();
        // A connection that broke is the client's matter.
        let _ = connection.await;
    }
}
