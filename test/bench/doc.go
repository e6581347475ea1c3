// Package bench measures a hub, a sandbox cluster and an agent as a user would run them, and a hub with simulated fleets.
// `make bench` runs the one and writes bench.json, `make bench-fleet` and others the other, and write files such as
// bench-fleet.json; `make bench-clusters` measures hubs and agents in clusters with real pods. All print a table. They assert nothing about
// time: figures depend on the machine, which is written next to them.
package bench
