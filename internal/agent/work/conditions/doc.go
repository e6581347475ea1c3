// Package conditions has all conditions of a ManifestWork and of the manifests in its status: when each is set, with which reason
// and which message. It is pure: a pass over a work hands in what it found out, and the status of the work is changed in memory.
// The names of types and reasons are in package fleet.
//
//	condition                       of the work        of a manifest
//	Applied                         work.go            manifest.go
//	Available                       work.go            manifest.go
//	StatusFeedbackSynced                               manifest.go
//	Disputed                        disputed.go        disputed.go
//	Progressing, Degraded           aggregate.go       health.go, or rules.go if a rule is about it
//	Complete, and those of rules    aggregate.go       rules.go
//	RulesUnmatched                  unmatched.go
//	Deleting                        deleting.go
//	DryRun                          dryrun.go          dryrun.go
//
// # Times and generations
//
// The time of a condition is that of the last change of its status, as usual. Conditions that say what became of a manifest under a
// generation of the work, Applied and all that are derived from the object, get a new time with each generation: a rollout counts from
// it. The time of StatusFeedbackSynced is that of the values.
//
// # Conditions by rules
//
// The rules of a manifestConfig set conditions. A rule that cannot be evaluated sets its condition, too, with a
// reason and a message that say what to correct.
//
// # Conditions without rules
//
// Of objects whose kind is known (package objecthealth) Progressing and Degraded are set without a rule, so that rollouts advance.
// An object that is as its spec says is neither; one that is being brought there is Progressing; a failed one is Progressing and
// Degraded, because that is what a rollout takes for a failure. A rule for the same condition takes the place of the derived one: where
// any rule of a work is about Progressing, rules alone decide on the Progressing of the work.
package conditions
