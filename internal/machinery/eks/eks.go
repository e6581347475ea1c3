// Package eks has the names by which a hub and a managed cluster, both clusters of Amazon EKS, know each other in AWS IAM: pure.
package eks

import (
	"crypto/md5" //nolint:gosec // it makes a name that both sides work out, and protects nothing
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// Cluster is a cluster of Amazon EKS.
type Cluster struct {
	Region  string
	Account string
	Name    string
}

var arn = regexp.MustCompile(`^arn:aws:eks:([a-zA-Z0-9-]+):(\d{12}):cluster/([a-zA-Z0-9-]+)$`)

// Parse takes the ARN of a cluster apart.
func Parse(text string) (Cluster, error) {
	parts := arn.FindStringSubmatch(text)
	if parts == nil {
		return Cluster{}, fmt.Errorf("%q is not the ARN of an EKS cluster, which is arn:aws:eks:REGION:ACCOUNT:cluster/NAME with 12 digits of account",
			text)
	}
	return Cluster{Region: parts[1], Account: parts[2], Name: parts[3]}, nil
}

// ARN is the name of the cluster in AWS.
func (c Cluster) ARN() string {
	return "arn:aws:eks:" + c.Region + ":" + c.Account + ":cluster/" + c.Name
}

// IdentityCreatorARN is the role, in the account of a hub, as which the hub makes the roles of clusters.
func (c Cluster) IdentityCreatorARN() string {
	return roleARN(c.Account, c.Name+"_managed-cluster-identity-creator")
}

// Pair is a hub and a managed cluster.
type Pair struct{ Hub, Managed Cluster }

// ParsePair takes the ARNs of a hub and of a managed cluster apart.
func ParsePair(hub, managed string) (p Pair, err error) {
	if p.Hub, err = Parse(hub); err != nil {
		return Pair{}, fmt.Errorf("hub: %w", err)
	}
	if p.Managed, err = Parse(managed); err != nil {
		return Pair{}, fmt.Errorf("managed cluster: %w", err)
	}
	return p, nil
}

// Suffix ends the names of the two roles of the pair.
func (p Pair) Suffix() string {
	names := []string{p.Hub.Account, p.Hub.Name, p.Managed.Account, p.Managed.Name}
	sum := md5.Sum([]byte(strings.Join(names, "#"))) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

const hubRolePrefix = "ocm-hub-"

// HubRole is the name of the role, in the account of the hub, as which the agent of the managed cluster works on the hub.
func (p Pair) HubRole() string { return hubRolePrefix + p.Suffix() }

// HubRoleARN is HubRole in the form of an ARN.
func (p Pair) HubRoleARN() string { return roleARN(p.Hub.Account, p.HubRole()) }

// IsHubRole reports whether a name is that of a HubRole.
func IsHubRole(name string) bool {
	suffix, ok := strings.CutPrefix(name, hubRolePrefix)
	sum, err := hex.DecodeString(suffix)
	return ok && err == nil && len(sum) == md5.Size
}

// RoleARN is the ARN of a role in the account of the cluster.
func (c Cluster) RoleARN(role string) string { return roleARN(c.Account, role) }

// ManagedRoleARN is the role, in the account of the managed cluster, that its agent has there and that may become HubRole.
func (p Pair) ManagedRoleARN() string {
	return roleARN(p.Managed.Account, "ocm-managed-cluster-"+p.Suffix())
}

func roleARN(account, role string) string { return "arn:aws:iam::" + account + ":role/" + role }

// Tags are those that the administrator of the managed cluster gives its role, and the hub its own: the trust policy requires them.
func (p Pair) Tags() map[string]string {
	return map[string]string{
		"hub_cluster_account_id": p.Hub.Account, "hub_cluster_name": p.Hub.Name,
		"managed_cluster_account_id": p.Managed.Account, "managed_cluster_name": p.Managed.Name,
	}
}

type policy struct {
	Version   string
	Statement []statement
}

type statement struct {
	Effect    string
	Principal map[string]string
	Action    string
	Condition map[string]map[string]string
}

// TrustPolicy says, in JSON, who may become HubRole: the role of the managed cluster, while it has the tags of the pair.
func (p Pair) TrustPolicy() (string, error) {
	tags := map[string]string{}
	for key, value := range p.Tags() {
		tags["aws:PrincipalTag/"+key] = value
	}
	text, err := json.Marshal(policy{Version: "2012-10-17", Statement: []statement{{
		Effect: "Allow", Principal: map[string]string{"AWS": p.ManagedRoleARN()}, Action: "sts:AssumeRole",
		Condition: map[string]map[string]string{"StringEquals": tags},
	}}})
	return string(text), err
}

// Annotations are those by which an agent says to the hub which cluster it is of.
func (p Pair) Annotations() map[string]string {
	return map[string]string{
		fleet.AnnotationManagedClusterARN:           p.Managed.ARN(),
		fleet.AnnotationManagedClusterIAMRoleSuffix: p.Suffix(),
	}
}

// Claims reports whether the annotations of a ManagedCluster say that it registers by AWS IAM.
func Claims(annotations map[string]string) bool {
	return annotations[fleet.AnnotationManagedClusterARN] != "" || annotations[fleet.AnnotationManagedClusterIAMRoleSuffix] != ""
}

// Verify returns a hub and the cluster that the annotations of a ManagedCluster name. The error says what is wrong with these.
func Verify(hub Cluster, annotations map[string]string) (Pair, error) {
	managed, err := Parse(annotations[fleet.AnnotationManagedClusterARN])
	if err != nil {
		return Pair{}, fmt.Errorf("the annotation %s: %w", fleet.AnnotationManagedClusterARN, err)
	}
	p := Pair{Hub: hub, Managed: managed}
	if suffix := annotations[fleet.AnnotationManagedClusterIAMRoleSuffix]; suffix != p.Suffix() {
		return Pair{}, fmt.Errorf("the annotation %s is %q, and that of %s with the hub %s is %s: see whether the agent has the ARN of this hub",
			fleet.AnnotationManagedClusterIAMRoleSuffix, suffix, managed.ARN(), hub.ARN(), p.Suffix())
	}
	return p, nil
}

// Patterns are those of the ARNs of clusters.
type Patterns []*regexp.Regexp

// ParsePatterns compiles regular expressions, each of which has to match the whole of an ARN.
func ParsePatterns(texts []string) (patterns Patterns, err error) {
	for _, text := range texts {
		if text == "" {
			return nil, fmt.Errorf("a pattern is empty; write one that matches ARNs, such as arn:aws:eks:us-west-2:123456789012:cluster/.*")
		}
		pattern, err := regexp.Compile(`^(?:` + text + `)$`)
		if err != nil {
			return nil, fmt.Errorf("%q is no regular expression: %w; write for instance arn:aws:eks:us-west-2:123456789012:cluster/.*", text, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns, nil
}

// Match reports whether one of the patterns matches the whole ARN of a cluster.
func (p Patterns) Match(c Cluster) bool {
	for _, pattern := range p {
		if pattern.MatchString(c.ARN()) {
			return true
		}
	}
	return false
}
