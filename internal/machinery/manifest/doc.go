// Package manifest knows what a ManifestWork's manifests are: how to read them, in which order to apply them, and what
// to write so that a live object becomes what its manifest says. It is pure: it calls no API and keeps no state.
//
// # Reading and ordering
//
// Decode reads every manifest of a ManifestWork and keeps its ordinal, the index in the spec, which is how status refers
// to it. What cannot be read keeps its place too, with an error. Order sorts by kind, so that what others need comes
// first.
//
// # Merging
//
// Merge is the update strategy Update. The live object holds more than its manifest: defaults of the API server,
// addresses it handed out, fields that controllers own. Writing the manifest over it would fight with all of them, so:
//
//   - A field that the manifest names is made equal in the live object. A field it does not name is left alone.
//   - A field that the previous manifest named and this one does not is removed from the live object. LeaveToOthers spares those that
//     others have.
//   - A list is one value: when any of its elements differs from the manifest (by the two rules above), or their number
//     does, the list of the manifest takes its place. Lists of native kinds whose elements have a name, such as containers,
//     volumes and ports (see mergekeys.go), are matched by it instead: the manifest says which elements there are and in which order,
//     and each keeps the fields the manifest does not name.
//   - Some content has one owner and no defaults, and there a field that the manifest does not name is removed: data of
//     ConfigMaps and Secrets, selectors, RBAC rules, CRD schemas, rules of network policies (see kinds.go). What a
//     controller is known to add there stays (tokens in Secrets, image pull secrets in ServiceAccounts, aggregated rules).
//   - A live Pod is never stripped of what the API server added to its lists: it could not be updated then.
//   - null is the same as not naming a field. In the kinds of Kubernetes itself, an empty value is the same as an absent
//     one where the API server does not store it, and quantities are compared by what they mean ("1000m" is "1").
//   - Labels and annotations of the manifest are set, others are left. A key that ends in "-" is removed. Owner
//     references are merged by UID; one whose UID ends in "-" is removed. Finalizers are not added to a live object. A label, annotation,
//     owner reference or finalizer that the previous manifest named and this one does not is removed.
//   - status, and all other metadata, are not touched.
//
// The result is written with the live object's resource version, so a change in between is a conflict and never lost.
package manifest
