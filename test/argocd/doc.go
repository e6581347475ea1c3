// Package argocd runs the code of Argo CD against a hub and a cluster that is joined to it: its ApplicationSet controller, its database of
// clusters, and the engine by which it applies what is in Git. It is a module of its own, as Argo CD requires other versions of Kubernetes
// than the programs of Capstan, which the tests start as a user does, from the folder bin.
package argocd
