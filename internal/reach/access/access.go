// Package access says as whom users of a hub act on a managed cluster, what they may request of it, and which of its services they reach:
// pure.
//
// A user of the hub is somebody else on the managed cluster: one whose name starts with Prefix, in groups whose names start so. No role
// of the cluster is bound to such names unless somebody has meant it, so what a user of the hub may do on the cluster is what RBAC of
// the cluster says of these names, and nothing by default. Rules, which are on the cluster, narrow it further.
package access

import (
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"unicode"
)

// Prefix is the prefix of the names that users and groups of the hub have on a managed cluster.
const Prefix = "cluster:hub:"

// Headers of a request in a tunnel, which say who sent it to the hub.
const (
	HeaderUser  = "X-Remote-User"
	HeaderGroup = "X-Remote-Group"
)

// User is a user of the hub.
type User struct {
	Name   string
	Groups []string
}

// anonymous is who has not said who it is.
const anonymous = "system:anonymous"

// everybody is the group of all users that are authenticated. Whoever is impersonated is in that of the cluster.
const everybody = "system:authenticated"

// Check refuses a user who would be another one at the other end of a tunnel.
func (u User) Check() error {
	if err := CheckIdentity("user", u.Name); err != nil {
		return err
	}
	for _, group := range u.Groups {
		if err := CheckIdentity("group", group); err != nil {
			return err
		}
	}
	return nil
}

// CheckIdentity refuses a part of an identity, such as the name of a user or group, that would be another one in the header of a request:
// spaces around a value do not arrive, and a control character may end it.
func CheckIdentity(part, value string) error {
	if value != strings.TrimSpace(value) || strings.ContainsFunc(value, unicode.IsControl) {
		return fmt.Errorf("%s %q begins or ends with a space, or has a control character, and would be another one in the header of a request; "+
			"use one without", part, value)
	}
	return nil
}

// Write puts the user into the headers of a request, in place of whoever is there. Check has passed the user before.
func (u User) Write(header http.Header) {
	Strip(header)
	header.Set(HeaderUser, u.Name)
	for _, group := range u.Groups {
		header.Add(HeaderGroup, group)
	}
}

// Read takes the user out of the headers of a request. Without one it fails.
func Read(header http.Header) (User, error) {
	user := User{Name: header.Get(HeaderUser), Groups: header.Values(HeaderGroup)}
	if user.Name == "" {
		return User{}, fmt.Errorf("the hub does not say who sends the request: it has no user in the header %s", HeaderUser)
	}
	return user, nil
}

// Anonymous reports whether the hub does not know the user, who then has to be known to the cluster.
func (u User) Anonymous() bool { return u.Name == anonymous }

// OnCluster is who the user is on a managed cluster.
func (u User) OnCluster() User {
	on := User{Name: Prefix + u.Name}
	for _, group := range u.Groups {
		if group != everybody {
			on.Groups = append(on.Groups, Prefix+group)
		}
	}
	return on
}

// Impersonate has a request to the API server of the managed cluster be one of this user.
func (u User) Impersonate(header http.Header) {
	header.Set("Impersonate-User", u.Name)
	for _, group := range u.Groups {
		header.Add("Impersonate-Group", group)
	}
}

// credentials are headers that authenticate somebody to one server, and are no business of another.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization"}

// Strip removes everything from the headers of a request by which an API server or a proxy would take it for one of somebody.
func Strip(header http.Header) {
	for key := range header {
		name := textproto.CanonicalMIMEHeaderKey(key)
		if slices.Contains(credentials, name) || strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") {
			delete(header, key)
		}
	}
	stripProtocols(header)
}

const (
	headerProtocols = "Sec-Websocket-Protocol"
	// bearerProtocol is the prefix of a WebSocket protocol that is a token, for clients that can set no other header.
	bearerProtocol = "base64url.bearer.authorization.k8s.io."
)

func stripProtocols(header http.Header) {
	offered := strings.Join(header.Values(headerProtocols), ",")
	if !strings.Contains(offered, bearerProtocol) {
		return
	}
	kept := slices.DeleteFunc(strings.Split(offered, ","), func(protocol string) bool {
		return strings.HasPrefix(strings.TrimSpace(protocol), bearerProtocol)
	})
	if header.Del(headerProtocols); len(kept) > 0 {
		header.Set(headerProtocols, strings.TrimSpace(strings.Join(kept, ",")))
	}
}

// VerbUpgrade is the verb that a request needs to have its connection upgraded, besides that of its method: whoever executes something in a
// pod, attaches to it or forwards a port sends a POST or a GET.
const VerbUpgrade = "create"

// IsUpgrade reports whether a request is for an upgrade to another protocol, such as a WebSocket, by what API servers go by. Without naming
// a protocol it is none: proxies set the option of the connection on all requests that they hand on.
func IsUpgrade(header http.Header) bool {
	namesProtocol := strings.Join(header.Values("Upgrade"), "") != ""
	return namesProtocol && slices.ContainsFunc(header.Values("Connection"), func(options string) bool {
		return strings.Contains(strings.ToLower(options), "upgrade")
	})
}

// Rules narrow what users of the hub may request of a cluster: a request has to be allowed by one of them. They grant nothing; the API
// server of the cluster checks RBAC besides.
type Rules []Rule

// Rule allows requests. An empty list allows any.
type Rule struct {
	// Users and Groups are those of the hub, by the names that they have there; one of either list has to match.
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Verbs are those of the API, such as get, list, watch and create; "*" is any.
	Verbs []string `json:"verbs,omitempty"`
	// Namespaces that a request may be about; a rule with some allows nothing outside of namespaces.
	Namespaces []string `json:"namespaces,omitempty"`
}

// Request is one to the API of a cluster.
type Request struct{ Verb, Namespace string }

// Allow reports whether a rule allows the request of the user.
func (r Rules) Allow(user User, request Request) bool {
	return slices.ContainsFunc(r, func(rule Rule) bool { return rule.allows(user, request) })
}

// For returns the rules that are about the user.
func (r Rules) For(user User) Rules {
	var found Rules
	for _, rule := range r {
		if rule.isFor(user) {
			found = append(found, rule)
		}
	}
	return found
}

// Narrows reports whether there is a request that the rules do not allow to those whom they are about.
func (r Rules) Narrows() bool {
	return !slices.ContainsFunc(r, func(rule Rule) bool {
		return len(rule.Namespaces) == 0 && (len(rule.Verbs) == 0 || slices.Contains(rule.Verbs, "*"))
	})
}

// String says what the rules allow, but not whom.
func (r Rules) String() string {
	var parts []string
	for _, rule := range r {
		part := "any verb"
		if len(rule.Verbs) > 0 {
			part = strings.Join(rule.Verbs, ", ")
		}
		if len(rule.Namespaces) > 0 {
			part += " in " + strings.Join(rule.Namespaces, ", ")
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

func (r Rule) isFor(user User) bool {
	return len(r.Users)+len(r.Groups) == 0 || slices.Contains(r.Users, user.Name) ||
		slices.ContainsFunc(user.Groups, func(group string) bool { return slices.Contains(r.Groups, group) })
}

func (r Rule) allows(user User, request Request) bool {
	isVerb := len(r.Verbs) == 0 || slices.Contains(r.Verbs, "*") || slices.Contains(r.Verbs, request.Verb)
	inNamespace := len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, request.Namespace)
	return r.isFor(user) && isVerb && inNamespace
}
