package output

import (
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Access is what a user of a hub may do on clusters.
type Access struct {
	Subject
	// Namespace is the one on the clusters in which the rights are.
	Namespace string          `json:"namespace"`
	Clusters  []ClusterAccess `json:"clusters"`
}

// Subject is a user of a hub.
type Subject struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
	// OnClusters is the name that the user has on clusters.
	OnClusters string `json:"userOnClusters"`
}

// ClusterAccess is what the user may do on one cluster.
type ClusterAccess struct {
	Cluster string `json:"clusterName"`
	// Enter has the verbs that the hub lets the user send to the cluster: get, create, update, patch, delete.
	Enter []string `json:"enter"`
	// Connected reports whether the cluster answers through the hub: True or False; empty if nothing was sent to it.
	Connected string `json:"connected,omitempty"`
	// Rights are those that the cluster gives.
	Rights []authorizationv1.ResourceRule `json:"rights,omitempty"`
	// Incomplete says that there may be more, because the cluster has other authorizers than RBAC.
	Incomplete bool `json:"incomplete,omitempty"`
	// Narrowed is what the owner of the cluster makes of the rights.
	Narrowed []string `json:"narrowed,omitempty"`
	// Permissions are the ClusterPermissions of the hub that are about the user, as far as they can be read.
	Permissions []Permission `json:"clusterPermissions,omitempty"`
	// Reason is why something is missing, and Next what to do about it.
	Reason string `json:"reason,omitempty"`
	Next   string `json:"next,omitempty"`
}

// Permission is a ClusterPermission.
type Permission struct {
	Name string `json:"name"`
	// Applied reports whether the rights are on the cluster.
	Applied bool `json:"applied"`
	// Message is what the hub says about that.
	Message string `json:"message,omitempty"`
}

// Accesses shows a row for each cluster.
func Accesses(access *Access) View {
	return View{Object: access, Grid: func() Grid {
		grid := Grid{Header: []string{"Cluster Name", "Enter", "Connected", "Rights", "Narrowed By Owner", "Permissions"}}
		for i := range access.Clusters {
			c := &access.Clusters[i]
			enter := Plain(strings.Join(c.Enter, ","))
			if len(c.Enter) == 0 {
				enter = Cell{Text: "no", Bad: true}
			}
			var permissions []string
			for _, p := range c.Permissions {
				if !p.Applied {
					p.Name += " (not applied)"
				}
				permissions = append(permissions, p.Name)
			}
			narrowed := ""
			if len(c.Narrowed) > 0 {
				narrowed = "yes"
			}
			grid.Rows = append(grid.Rows, []Cell{Plain(c.Cluster), enter, probeCell(c.Connected), c.rights(), Plain(narrowed),
				Plain(strings.Join(permissions, ","))})
		}
		return grid
	}}
}

// shownResources is how many resources a cell names.
const shownResources = 3

// rights names the first resources of the rules with most verbs, but for the reviews that everybody may make of itself.
func (c *ClusterAccess) rights() Cell {
	if c.Connected != "True" || c.Rights == nil {
		return Plain("")
	}
	var verbs []string // in the order in which they come first
	resources := map[string][]string{}
	for i := range c.Rights {
		rule := &c.Rights[i]
		words := slices.Clone(rule.Verbs)
		slices.Sort(words)
		key := strings.Join(slices.Compact(words), ",")
		for _, resource := range rule.Resources {
			if strings.HasPrefix(resource, "selfsubject") || slices.Contains(resources[key], resource) {
				continue
			}
			if resources[key] == nil {
				verbs = append(verbs, key)
			}
			resources[key] = append(resources[key], resource)
		}
	}
	if len(verbs) == 0 {
		return Cell{Text: "none", Bad: true}
	}
	var parts []string
	shown, all := 0, 0
	for _, key := range verbs {
		named := resources[key]
		all += len(named)
		if left := shownResources - shown; left > 0 {
			named = named[:min(left, len(named))]
			shown += len(named)
			parts = append(parts, key+" "+strings.Join(named, ","))
		}
	}
	if all > shown {
		parts = append(parts, fmt.Sprintf("%d more", all-shown))
	}
	return Plain(strings.Join(parts, "; "))
}

// AccessReviews say whether a user may do something on clusters.
type AccessReviews struct {
	Subject
	Verb        string         `json:"verb"`
	Resource    string         `json:"resource"`
	Subresource string         `json:"subresource,omitempty"`
	Name        string         `json:"name,omitempty"`
	Namespace   string         `json:"namespace,omitempty"`
	Clusters    []AccessReview `json:"clusters"`
}

// Who refuses a request.
const (
	ByHub        = "hub"
	ByConnection = "connection"
	ByOwner      = "owner"
	ByCluster    = "cluster"
)

// AccessReview is that of one cluster.
type AccessReview struct {
	Cluster string `json:"clusterName"`
	Allowed bool   `json:"allowed"`
	// By is who refuses it first: hub, connection, owner or cluster.
	By string `json:"refusedBy,omitempty"`
	// Reason is why, and Next what to do about it.
	Reason string `json:"reason,omitempty"`
	Next   string `json:"next,omitempty"`
}

// AccessReviewTable shows a row for each cluster.
func AccessReviewTable(reviews *AccessReviews) View {
	return View{Object: reviews, Grid: func() Grid {
		grid := Grid{Header: []string{"Cluster Name", "Allowed", "Refused By", "Reason"}}
		for i := range reviews.Clusters {
			c := &reviews.Clusters[i]
			allowed := Plain("yes")
			if !c.Allowed {
				allowed = Cell{Text: "no", Bad: true}
			}
			grid.Rows = append(grid.Rows, []Cell{Plain(c.Cluster), allowed, Plain(c.By), Plain(c.Reason)})
		}
		return grid
	}}
}
