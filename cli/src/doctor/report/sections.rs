//! The evidence in words, a section for each part of the way.

use sdam_core::diagnosis::Verdict;

use crate::doctor::evidence::{
    Asked, BucketEnd, Counted, Evidence, Login, Said, ServerSeen, Transactions, Way,
};
use crate::duration::precise;

/// A headline, and the lines below it.
type Section = (&'static str, Vec<String>);

/// Writes all sections that have something to say.
pub(super) fn of(evidence: &Evidence) -> Vec<Section> {
    let sections = [
        ("options", options(evidence)),
        ("DNS", lookups(evidence)),
        ("routes", of_servers(evidence, routes)),
        ("TLS", of_servers(evidence, tls)),
        ("hello", of_servers(evidence, hello)),
        ("login", of_servers(evidence, login)),
        ("members seen from members", of_servers(evidence, members)),
        ("transactions", of_servers(evidence, transactions)),
        ("client", client(evidence)),
        ("GridFS", bucket(evidence)),
    ];
    sections.into_iter().filter(|(_, lines)| !lines.is_empty()).collect()
}

fn options(evidence: &Evidence) -> Vec<String> {
    let options = &evidence.options;
    let mut lines: Vec<String> = options.uri.iter().cloned().collect();
    lines.extend(options.error.iter().map(|error| format!("refused: {error}")));
    lines.extend(options.faults.iter().cloned());
    lines.extend(options.notes.iter().map(|note| format!("note: {note}")));
    lines
}

fn lookups(evidence: &Evidence) -> Vec<String> {
    let Some(lookups) = &evidence.lookups else { return Vec::new() };
    let mut lines = Vec::new();
    for server in &lookups.name_servers {
        let whose = if server.is_configured { "" } else { " (not configured)" };
        lines.push(format!("{}{whose} SRV: {}", server.address, asked(&server.srv)));
        lines.push(format!("{}{whose} TXT: {}", server.address, asked(&server.txt)));
    }
    lines.extend(lookups.system.as_ref().map(|it| format!("in turn, SRV: {}", asked(it))));
    lines
}

fn asked(asked: &Asked) -> String {
    let took = precise(asked.took);
    match &asked.said {
        Said::Answered { records } => format!("{} ({took})", records.join(", ")),
        Said::Absent { detail } | Said::Failed { detail } => format!("{detail} ({took})"),
        Said::Silent => format!("no answer within {took}"),
    }
}

fn of_servers(evidence: &Evidence, line: fn(&ServerSeen) -> Vec<String>) -> Vec<String> {
    let lines = evidence.servers.iter().flat_map(|server| {
        let lines = line(server).into_iter();
        lines.map(|line| format!("{}: {line}", server.address))
    });
    lines.collect()
}

fn routes(server: &ServerSeen) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(server.dialled.as_ref().map(|it| format!("dialled as {it}")));
    if let Some(resolved) = &server.resolved {
        let addresses: Vec<String> =
            resolved.addresses.iter().map(|it| it.ip().to_string()).collect();
        let found = match addresses.is_empty() {
            true => "no address".to_owned(),
            false => addresses.join(", "),
        };
        lines.push(format!("resolves to {found} ({})", precise(resolved.took)));
    }
    for route in &server.routes {
        let outcome = match &route.failure {
            None => "connects".to_owned(),
            Some(failure) => failure.to_string(),
        };
        lines.push(format!("{} {outcome} ({})", route.address, precise(route.took)));
    }
    lines
}

fn tls(server: &ServerSeen) -> Vec<String> {
    let Some(certificate) = &server.certificate else { return Vec::new() };
    let mut lines = vec![
        format!(
            "certificate of {}, issued by {}, for {}",
            certificate.subject,
            certificate.issuer,
            certificate.names.join(", ")
        ),
        format!(
            "{} of {} days left, {} sent, {}",
            certificate.days_left,
            certificate.days_in_all,
            match certificate.chain_length {
                1 => "1 certificate".to_owned(),
                count => format!("{count} certificates"),
            },
            certificate.version.as_deref().unwrap_or("an unknown version of TLS")
        ),
    ];
    if certificate.is_stapled {
        lines.push("the response of a responder comes with it".to_owned());
    }
    lines.extend(certificate.responder.as_ref().map(|it| {
        let outcome = it.failure.as_deref().or(it.status.as_deref()).unwrap_or("connects");
        format!("responder {}: {outcome} ({})", it.url, precise(it.took))
    }));
    lines
}

fn hello(server: &ServerSeen) -> Vec<String> {
    let mut lines = vec![way(&server.way)];
    lines.extend(server.other_way.iter().map(way));
    let more = server.more.iter().filter(|it| it.failure.is_some());
    lines.extend(more.map(|it| format!("another connection: {}", way(it))));
    lines
}

fn way(way: &Way) -> String {
    let how = if way.tls { "with TLS" } else { "without TLS" };
    if let Some(failure) = &way.failure {
        return format!("{how}: {failure} (stage: {})", failure.stage.words());
    }
    let Some(greeting) = &way.greeting else { return format!("{how}: not asked") };
    let mut parts = vec![format!("{how}: {}", greeting.role.words())];
    parts.extend(greeting.set_name.as_ref().map(|name| format!("set {name}")));
    parts.extend(greeting.me.as_ref().map(|me| format!("known as {me}")));
    parts.extend(greeting.primary.as_ref().map(|it| format!("primary {it}")));
    parts.extend(way.hello.map(|took| format!("hello in {}", precise(took))));
    parts.join(", ")
}

fn login(server: &ServerSeen) -> Vec<String> {
    let Some(login) = &server.login else { return Vec::new() };
    let Login { error, established, refusals, failed, connections, .. } = login;
    let mut lines = Vec::new();
    lines.extend(error.as_ref().map(|error| format!("fails: {}", error.text)));
    lines.extend(established.map(|took| format!("a connection in {}", precise(took))));
    lines.extend(refusals.iter().chain(failed).map(|it| {
        let labels = match it.labels.is_empty() {
            true => String::new(),
            false => format!(", labels: {}", it.labels.join(", ")),
        };
        format!("{}: {}{labels}", it.command, it.text)
    }));
    lines.extend(connections.map(|it| {
        format!("{} connections are open, {} more are possible", it.current, it.available)
    }));
    lines.extend(login.clients.iter().take(5).map(|group| {
        let process = group.process.map(|it| format!(", process {it}")).unwrap_or_default();
        let (count, host) = (group.monitors, &group.host);
        format!("{count} monitoring connections of {host}{process} ({})", group.name)
    }));
    lines
}

fn members(server: &ServerSeen) -> Vec<String> {
    let members = server.login.iter().flat_map(|login| &login.members);
    let lines = members.map(|member| {
        let message = member.message.as_deref().map(|it| format!(", {it}")).unwrap_or_default();
        format!("{} is {}{message}", member.address, member.state)
    });
    lines.collect()
}

fn transactions(server: &ServerSeen) -> Vec<String> {
    let Some(login) = &server.login else { return Vec::new() };
    let Transactions { counted, lately, limit, idle, expired } = &login.transactions;
    let mut lines = Vec::new();
    lines.extend(counted.as_ref().filter(|it| it.ended() > 0 || it.open > 0).map(counts));
    lines.extend(lately.as_ref().map(counts));
    lines.extend(limit.map(|limit| format!("they may last for {}", precise(limit))));
    lines.extend(idle.iter().take(5).map(|it| {
        let (open, unused) = (precise(it.open), precise(it.unused));
        format!("one of {} is open for {open}, and unused for {unused}", it.owner)
    }));
    lines.extend((*expired > 0).then(|| format!("{expired} were open for too long")));
    lines.extend(login.oplog.map(|oplog| {
        let (size, max_size) = (oplog.size >> 10, oplog.max_size >> 10);
        let window = precise(oplog.window);
        format!("the oplog reaches back for {window}, and has {size} of {max_size} KiB")
    }));
    lines
}

fn counts(counted: &Counted) -> String {
    let Counted { time, open, committed, aborted, conflicts, .. } = counted;
    let (failed, commits) = (counted.failed_commits, counted.commits);
    format!(
        "within {}: {committed} committed, {aborted} aborted, {open} open now, {failed} of \
         {commits} commits failed, {conflicts} writes outside of them tried again",
        precise(*time)
    )
}

fn client(evidence: &Evidence) -> Vec<String> {
    let client = &evidence.client;
    if client.topology.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{}, after {} and {} checks",
        client.topology,
        precise(client.watched),
        client.checks
    )];
    // A peer that answers in another protocol is silent for a client only.
    let is_alien = !evidence.servers.is_empty()
        && evidence.servers.iter().all(|server| server.protocol.is_some());
    let because = |verdict: &Verdict| match verdict {
        Verdict::ServersSilent { .. } if is_alien => String::new(),
        verdict => format!(": {verdict}"),
    };
    lines.push(match &client.why_not {
        None => "writes find a server".to_owned(),
        Some(verdict) => format!("writes find no server{}", because(verdict)),
    });
    lines.extend(
        client.why_not_read.as_ref().map(|it| format!("reads find no server{}", because(it))),
    );
    lines.extend(client.diagnosed.iter().map(|it| {
        let over = if it.is_over { "; that is over" } else { "" };
        format!("{}{over}", it.verdict)
    }));
    lines
}

fn bucket(evidence: &Evidence) -> Vec<String> {
    let Some(bucket) = &evidence.bucket else { return Vec::new() };
    let Some(server) = &bucket.server else { return Vec::new() };
    let (chunks, files) = (bucket.chunks, bucket.files);
    let mut lines = vec![format!("{}, as {server} has it", bucket.name)];
    if bucket.end == Some(BucketEnd::Missing) {
        return lines;
    }
    lines.push(format!("{chunks} chunks and {files} documents of files were looked at"));
    lines.push(format!("{} files cannot be read", bucket.damaged_files));
    let kinds = [
        ("without a document", bucket.orphaned),
        ("without a document as yet", bucket.recent),
        ("were removed", bucket.removed),
    ];
    let kinds = kinds.into_iter().filter(|(_, count)| count.files > 0);
    lines.extend(
        kinds.map(|(what, count)| {
            format!("{} chunks of {} files {what}", count.chunks, count.files)
        }),
    );
    lines
}
