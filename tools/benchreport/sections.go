package main

// section is a part of the page: what is measured, how, and what is not real about it.
type section struct {
	title  string
	method string
	// figures have one value for each size of the fleet, distributions many.
	figures, distributions []string
	curves                 []curve
}

// sections are in the order of the page.
var sections = []section{
	{
		title: "Join",
		method: "All agents start at once with a bootstrap token that the hub approves by itself, and count from there until their cluster is\n" +
			"Available. The hub runs with `--join-limit 100000`: by default, one token has 1,000 clusters waiting at most. The agents are light: they\n" +
			"register with the code of real ones, over a TLS connection each, report and beat with the same requests, and manage nothing.",
		figures: []string{"start to all Available", "clusters Available per second", "hub CPU to join, each",
			"simulator CPU to join, each", "requests to join, each"},
		distributions: []string{"start to Available, each"},
		curves: []curve{
			{file: "join.svg", title: "Start of all agents to all clusters Available", unit: "s", measures: []string{"start to all Available"}},
			{file: "join-cpu.svg", title: "CPU to join, each cluster", unit: "ms",
				measures: []string{"hub CPU to join, each", "simulator CPU to join, each"}, linear: true},
		},
	},
	{
		title: "At rest",
		method: "The same fleet, when nothing changes: agents renew their leases every `leaseDurationSeconds`, 60 by default, and keep their watches.\n" +
			"Then with 10 seconds. Requests are those of all clients and of the hub's own controllers.",
		figures: []string{"hub CPU, of a core", "hub CPU per minute, each", "hub CPU, of a core, leaseDurationSeconds 10",
			"requests per minute, each", "watches, each"},
		curves: []curve{{file: "at-rest.svg", title: "CPU of the hub at rest, of a core", unit: "%",
			measures: []string{"hub CPU, of a core", "hub CPU, of a core, leaseDurationSeconds 10"}}},
	},
	{
		title: "Memory",
		method: "Resident memory of the hub with this fleet at rest: API server, etcd, admission and all controllers, which are one process.\n" +
			"For each cluster counts what it has more than without any; for each light agent, what the simulator has.",
		figures: []string{"hub resident memory", "hub resident memory, each", "simulator resident memory, each light agent"},
		curves:  []curve{{file: "memory.svg", title: "Resident memory of the hub", unit: "MB", measures: []string{"hub resident memory"}}},
	},
	{
		title: "Lost and found",
		method: "With leases of 10 seconds, a tenth of the agents stops, and the hub gives each five leases of time. Then they start again. The\n" +
			"measurement fails if any other cluster counts as lost.",
		distributions: []string{"loss of a tenth seen, leaseDurationSeconds 10", "start of a tenth again to Available"},
	},
	{
		title: "The hub away",
		method: "With leases of a minute, the hub stops, and starts again. From its start counts when the hub has the next heartbeat of each cluster. From\n" +
			"when it is ready until then, an administrator asks for a ManagedCluster each second: a user who is no member of system:masters, whose\n" +
			"requests wait with others. The measurement fails if any cluster counts as lost.",
		figures: []string{"hub away", "hub away: start to ready", "hub away: start to heartbeats of all",
			"hub away: request of an administrator, 99 %"},
		distributions: []string{"hub away: start to heartbeat, each", "hub away: request of an administrator, each second until then"},
	},
	{
		title: "Placements, decided and delivered",
		method: "Placements that select a tenth of the clusters, each with a ManifestWorkReplicaSet that delivers a ConfigMap: a hundred one after the\n" +
			"other, then all others at once. Decided is when the Placement is satisfied, delivered when the works of all selected clusters are\n" +
			"Applied. The agents are real, on clusters in memory. Then the hub starts again: until it is ready, until it has written the decisions\n" +
			"of all placements or found them as they are, and how many works it writes in the half minute after.",
		figures: []string{"works applied per second, all others at once", "hub CPU, each work", "hub resident memory with all works",
			"hub started again to ready", "hub started again to all placements decided again", "works written after the start"},
		distributions: []string{"placement created to decided, one after the other",
			"placement created to applied on all of a tenth, one after the other",
			"placement created to decided, all others at once", "placement created to applied on all of a tenth, all others at once"},
	},
	{
		title: "Rollout",
		method: "A ManifestWorkReplicaSet on all clusters, from its creation or change until the works of all are Applied; a progressive rollout takes a\n" +
			"tenth of the clusters at a time. The agents are real, on clusters in memory, up to 1,000 of them, and light in larger fleets. The rate\n" +
			"of plain writes is that of the same writes of works, the agents' included, when a client sends them and nothing else happens.",
		figures: []string{"set created to all Applied", "set created to all Applied: of the rate of plain writes",
			"set changed to all Applied, All", "set changed to all Applied, All: of the rate of plain writes",
			"set changed to all Applied, Progressive 10 %", "set changed to all Applied, Progressive 10 %: of the rate of plain writes",
			"last Applied to status of the set"},
	},
	{
		title: "A set without agents",
		method: "A ManifestWorkReplicaSet on clusters that have no agents, which would take CPU from the hub: the measurement reports for them. The same\n" +
			"works from a client are plain writes, on the same hub before the set.",
		figures: []string{"the same works created by a client", "set created to all works written",
			"set created to all works written: of the rate of plain writes", "the same works changed by a client",
			"set changed to all works written", "set changed to all works written: of the rate of plain writes", "all agents report Applied",
			"last report to status of the set", "set deleted to all works gone"},
	},
	{
		title: "Works, drift and feedback",
		method: "Works that are created for all clusters at once, until Applied; an object that somebody deletes on its cluster, until it is back; a\n" +
			"Deployment that becomes available on its cluster, until the hub knows. The agents are real, on clusters in memory, up to 1,000 of\n" +
			"them; in larger fleets they are light, which have neither drift nor feedback. Memory is the hub's once all works are Applied.",
		figures: []string{"5 works each: hub resident memory", "100 works each: hub resident memory"},
		distributions: []string{"work created to Applied, each of those", "deleted object is back",
			"Deployment available on its cluster, known on the hub"},
	},
}
