// Package awstest is the part of AWS that gives clusters access to a hub, for tests: roles of IAM, and access entries of EKS clusters, in
// memory.
package awstest

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// Role is a role of IAM.
type Role struct {
	// Trust says who may become it, in JSON.
	Trust string
	Tags  map[string]string
}

// Entry is an access entry of an EKS cluster.
type Entry struct {
	Username         string            `json:"username"`
	KubernetesGroups []string          `json:"kubernetesGroups"`
	Tags             map[string]string `json:"tags"`
	PrincipalArn     string            `json:"principalArn"`
	ClusterName      string            `json:"clusterName"`
	AccessEntryArn   string            `json:"accessEntryArn"`
}

// AWS is the state.
type AWS struct {
	// URL is where the API is served.
	URL string

	lock    sync.Mutex
	account string
	roles   map[string]Role
	entries map[string]Entry // by the principal
	refused string           // the action that is refused
	writes  []string
}

// Start serves an account until the test ends.
func Start(t *testing.T, account string) *AWS {
	t.Helper()
	a := &AWS{account: account, roles: map[string]Role{}, entries: map[string]Entry{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", a.serveIAM)
	mux.HandleFunc("GET /clusters/{cluster}/access-entries/{principal...}", a.describeEntry)
	mux.HandleFunc("POST /clusters/{cluster}/access-entries", a.createEntry)
	mux.HandleFunc("POST /clusters/{cluster}/access-entries/{principal...}", a.updateEntry)
	mux.HandleFunc("DELETE /clusters/{cluster}/access-entries/{principal...}", a.deleteEntry)
	mux.HandleFunc("POST /tags/{resource...}", a.tagEntry)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	a.URL = server.URL
	return a
}

// Config has clients use it.
func (a *AWS) Config() []func(*config.LoadOptions) error {
	return []func(*config.LoadOptions) error{
		config.WithBaseEndpoint(a.URL), config.WithRetryMaxAttempts(1),
		config.WithCredentialsProvider(aws.CredentialsProviderFunc(a.credentials)),
	}
}

// Role returns a role.
func (a *AWS) Role(name string) (Role, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	role, found := a.roles[name]
	return role, found
}

// Entry returns the access entry of a role.
func (a *AWS) Entry(role string) (Entry, bool) {
	a.lock.Lock()
	defer a.lock.Unlock()
	entry, found := a.entries[a.arn(role)]
	return entry, found
}

// Change does to the state what a user of AWS does.
func (a *AWS) Change(change func(roles map[string]Role, entries map[string]Entry)) {
	a.lock.Lock()
	defer a.lock.Unlock()
	change(a.roles, a.entries)
}

// Refuse has an action refused, such as CreateRole; none if it is empty.
func (a *AWS) Refuse(action string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.refused = action
}

// Writes are the actions that have changed something since the last call, in order.
func (a *AWS) Writes() []string {
	a.lock.Lock()
	defer a.lock.Unlock()
	writes := a.writes
	a.writes = nil
	return writes
}

func (a *AWS) arn(role string) string { return "arn:aws:iam::" + a.account + ":role/" + role }

func tagsOf(form url.Values) map[string]string {
	tags := map[string]string{}
	for i := 1; form.Has(fmt.Sprintf("Tags.member.%d.Key", i)); i++ {
		tags[form.Get(fmt.Sprintf("Tags.member.%d.Key", i))] = form.Get(fmt.Sprintf("Tags.member.%d.Value", i))
	}
	return tags
}

func (a *AWS) serveIAM(w http.ResponseWriter, r *http.Request) {
	a.lock.Lock()
	defer a.lock.Unlock()
	action, name := r.FormValue("Action"), r.FormValue("RoleName")
	role, found := a.roles[name]
	switch {
	case action == a.refused:
		failIAM(w, http.StatusForbidden, "AccessDenied")
		return
	case action == "CreateRole" && found:
		failIAM(w, http.StatusConflict, "EntityAlreadyExists")
		return
	case action != "CreateRole" && !found:
		failIAM(w, http.StatusNotFound, "NoSuchEntity")
		return
	}
	switch action {
	case "GetRole":
		answerRole(w, action, name, a.arn(name), role)
		return
	case "CreateRole":
		role = Role{Trust: r.FormValue("AssumeRolePolicyDocument"), Tags: tagsOf(r.Form)}
		a.roles[name] = role
		defer answerRole(w, action, name, a.arn(name), role)
	case "UpdateAssumeRolePolicy":
		role.Trust = r.FormValue("PolicyDocument")
		a.roles[name] = role
	case "TagRole":
		maps.Copy(role.Tags, tagsOf(r.Form))
	case "DeleteRole":
		delete(a.roles, name)
	default:
		failIAM(w, http.StatusBadRequest, "InvalidAction")
		return
	}
	a.writes = append(a.writes, action)
	if action != "CreateRole" {
		fmt.Fprintf(w, "<%[1]sResponse><ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></%[1]sResponse>", action) //nolint:gosec // an action that is known
	}
}

func answerRole(w http.ResponseWriter, action, name, arn string, role Role) {
	type tag struct{ Key, Value string }
	var tags []tag
	for key, value := range role.Tags {
		tags = append(tags, tag{key, value})
	}
	encoded, err := xml.Marshal(struct {
		XMLName                                 xml.Name `xml:"Role"`
		RoleName, Arn, AssumeRolePolicyDocument string
		Tags                                    []tag `xml:"Tags>member"`
	}{RoleName: name, Arn: arn, AssumeRolePolicyDocument: url.QueryEscape(role.Trust), Tags: tags})
	if err != nil {
		failIAM(w, http.StatusInternalServerError, err.Error())
		return
	}
	fmt.Fprintf(w, "<%[1]sResponse><%[1]sResult>%[2]s</%[1]sResult></%[1]sResponse>", action, encoded) //nolint:gosec // for clients of AWS, and not for browsers
}

func failIAM(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>refused</Message></Error><RequestId>r</RequestId></ErrorResponse>", code)
}

// serveEKS answers with what do returns, or with its error.
func (a *AWS) serveEKS(w http.ResponseWriter, action string, do func() (answer any, failure string)) {
	a.lock.Lock()
	defer a.lock.Unlock()
	answer, failure := any(nil), "AccessDeniedException"
	if action != a.refused {
		answer, failure = do()
	}
	w.Header().Set("Content-Type", "application/json")
	if failure != "" {
		w.Header().Set("X-Amzn-Errortype", failure)
		status := http.StatusBadRequest
		if failure == "ResourceNotFoundException" {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		answer = map[string]string{"message": "refused"}
	} else if !strings.HasPrefix(action, "Describe") {
		a.writes = append(a.writes, action)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *AWS) describeEntry(w http.ResponseWriter, r *http.Request) {
	a.serveEKS(w, "DescribeAccessEntry", func() (any, string) {
		entry, found := a.entries[r.PathValue("principal")]
		if !found {
			return nil, "ResourceNotFoundException"
		}
		return map[string]any{"accessEntry": entry}, ""
	})
}

func (a *AWS) createEntry(w http.ResponseWriter, r *http.Request) {
	a.serveEKS(w, "CreateAccessEntry", func() (any, string) {
		var entry Entry
		if err := json.NewDecoder(r.Body).Decode(&entry); err != nil {
			return nil, "InvalidRequestException"
		}
		if _, found := a.entries[entry.PrincipalArn]; found {
			return nil, "ResourceInUseException"
		}
		if _, found := a.roles[strings.TrimPrefix(entry.PrincipalArn, a.arn(""))]; !found {
			return nil, "InvalidParameterException"
		}
		entry.ClusterName = r.PathValue("cluster")
		entry.AccessEntryArn = "arn:aws:eks:us-west-2:" + a.account + ":access-entry/" + entry.ClusterName + "/" + entry.PrincipalArn
		a.entries[entry.PrincipalArn] = entry
		return map[string]any{"accessEntry": entry}, ""
	})
}

func (a *AWS) updateEntry(w http.ResponseWriter, r *http.Request) {
	a.serveEKS(w, "UpdateAccessEntry", func() (any, string) {
		entry, found := a.entries[r.PathValue("principal")]
		if !found {
			return nil, "ResourceNotFoundException"
		}
		if err := json.NewDecoder(r.Body).Decode(&entry); err != nil {
			return nil, "InvalidRequestException"
		}
		a.entries[r.PathValue("principal")] = entry
		return map[string]any{"accessEntry": entry}, ""
	})
}

func (a *AWS) deleteEntry(w http.ResponseWriter, r *http.Request) {
	a.serveEKS(w, "DeleteAccessEntry", func() (any, string) {
		if _, found := a.entries[r.PathValue("principal")]; !found {
			return nil, "ResourceNotFoundException"
		}
		delete(a.entries, r.PathValue("principal"))
		return map[string]any{}, ""
	})
}

func (a *AWS) tagEntry(w http.ResponseWriter, r *http.Request) {
	a.serveEKS(w, "TagResource", func() (any, string) {
		var body Entry
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return nil, "InvalidRequestException"
		}
		for principal, entry := range a.entries {
			if entry.AccessEntryArn == r.PathValue("resource") {
				if entry.Tags == nil {
					entry.Tags = map[string]string{}
				}
				maps.Copy(entry.Tags, body.Tags)
				a.entries[principal] = entry
				return map[string]any{}, ""
			}
		}
		return nil, "ResourceNotFoundException"
	})
}

func (a *AWS) credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}
