// Package conditions derives conditions of manifests from the objects on the managed cluster, and those of a ManifestWork from
// its manifests. It calls no API.
//
// # From rules
//
// The rules of a manifestConfig set conditions. A rule that cannot be evaluated sets its condition, too, with a
// reason and a message that say what to mend.
//
// # Without rules
//
// Of objects whose kind is known (package health) Progressing and Degraded are set without a rule, so that rollouts advance.
// An object that is what it asks for is neither; one on its way is Progressing; a failed one is Progressing and Degraded, for
// that is what a rollout takes for a failure. A rule for the same condition takes the place of the derived one: where
// any rule of a work is about Progressing, rules alone decide on the Progressing of the work.
package conditions
