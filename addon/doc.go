// Package addon is for authors of add-ons: programs that run an agent on managed clusters, which the hub installs,
// registers, configures, watches and removes.
//
// An add-on implements [Agent]: what it brings to a cluster, and how the hub treats it. A manager (package
// addon/manager) does the rest, wherever the add-on's ManagedClusterAddOn exists:
//
//  1. it says in the status as whom the agent registers with the hub, and gives this identity its rights;
//  2. it approves the agent's certificate requests, if they request that identity and nothing else;
//  3. it deploys the manifests through ManifestWorks;
//  4. it reports whether the agent works, unless the agent's lease says so;
//  5. on deletion it runs the add-on's pre-delete hooks, and removes what it made.
//
// The agent finds its access to the hub in the Secret that [Installation.HubKubeconfigSecret] names. It restarts when the kubeconfig
// changes (package addon/restart), and renews a lease to report that it works (package addon/lease).
//
// An agent that scores its cluster for placements finds the scores with package addon/score.
//
// Packages addon/manifests, addon/chart, addon/values and addon/config help to make the manifests, and addon/addontest to test an add-on
// without a hub.
//
// Add-ons without code of their own are made from an AddOnTemplate instead; the hub itself runs these.
package addon
