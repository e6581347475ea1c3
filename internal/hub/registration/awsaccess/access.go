package awsaccess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"

	ekscluster "github.com/capstan-io/capstan/internal/machinery/eks"
)

// Access makes in AWS what lets the agents of clusters in: for each a role of IAM, and an entry in the access list of the hub.
type Access struct {
	hub  ekscluster.Cluster
	tags map[string]string
	iam  *iam.Client
	eks  *eks.Client
}

// NewAccess returns the Access of a hub. It acts as the environment says: with the role of the service account, in a cluster. What it
// makes has the tags. The options go before the environment.
func NewAccess(
	ctx context.Context, hub ekscluster.Cluster, tags map[string]string, options ...func(*config.LoadOptions) error,
) (*Access, error) {
	loaded, err := config.LoadDefaultConfig(ctx, append([]func(*config.LoadOptions) error{config.WithRegion(hub.Region)}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("load how to reach AWS: %w", err)
	}
	return &Access{hub: hub, tags: tags, iam: iam.NewFromConfig(loaded), eks: eks.NewFromConfig(loaded)}, nil
}

// clusterOf is the cluster that a role acts for on the hub, by the user of its access entry; empty if it has none.
func (a *Access) clusterOf(ctx context.Context, role string) (string, error) {
	entry, err := a.entry(ctx, role)
	return clusterOf(entry), err
}

// clusterOf is the cluster whose access entry it is; empty for none. The user of one that a hub of the original has made is the bare name.
func clusterOf(entry *ekstypes.AccessEntry) string {
	if entry == nil {
		return ""
	}
	return strings.TrimPrefix(aws.ToString(entry.Username), fleet.AWSClusterUser(""))
}

// grant gives a cluster access, in place of the holder. It changes nothing that is as it should be, and reads before it changes: after a
// readError, all is as before.
func (a *Access) grant(ctx context.Context, cluster, owner string, pair ekscluster.Pair) error {
	role, err := a.role(ctx, pair.HubRole())
	if err != nil {
		return err
	}
	entry, err := a.entry(ctx, pair.HubRole())
	if err != nil {
		return err
	}
	if now := clusterOf(entry); now != "" && now != cluster && now != owner {
		return fmt.Errorf("the access entry of %s in EKS cluster %s has become that of %q meanwhile", pair.HubRoleARN(), a.hub.Name, now)
	}
	if role == nil {
		return a.create(ctx, cluster, pair)
	}
	if err := a.updateRole(ctx, role, pair); err != nil {
		return err
	}
	if entry == nil {
		return a.createEntry(ctx, cluster, pair)
	}
	return a.updateEntry(ctx, entry, cluster, pair)
}

// create makes the role and its access entry, and before that deletes an entry by its name: an entry is for the role that had the name when
// it was made, and not for a later one. Once there is the role, nothing tells that its entry is an earlier one's.
func (a *Access) create(ctx context.Context, cluster string, pair ekscluster.Pair) error {
	if err := a.deleteEntry(ctx, pair.HubRole()); err != nil {
		return err
	}
	if err := a.createRole(ctx, pair); err != nil {
		return err
	}
	return a.createEntry(ctx, cluster, pair)
}

// revoke takes away what grant has made. The entry goes first: it is what lets the cluster in.
func (a *Access) revoke(ctx context.Context, role string) error {
	if err := a.deleteEntry(ctx, role); err != nil {
		return err
	}
	_, err := a.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &role})
	if is[*iamtypes.NoSuchEntityException](err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete IAM role %s: %w", role, err)
	}
	return nil
}

func (a *Access) tagsOf(pair ekscluster.Pair) map[string]string {
	tags := maps.Clone(a.tags)
	if tags == nil {
		tags = map[string]string{}
	}
	maps.Copy(tags, pair.Tags())
	return tags
}

// role is nil if there is none.
func (a *Access) role(ctx context.Context, name string) (*iamtypes.Role, error) {
	got, err := a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if is[*iamtypes.NoSuchEntityException](err) {
		return nil, nil
	}
	if err != nil {
		return nil, readError{fmt.Errorf("get IAM role %s: %w", name, err)}
	}
	return got.Role, nil
}

func (a *Access) createRole(ctx context.Context, pair ekscluster.Pair) error {
	name := pair.HubRole()
	trust, err := pair.TrustPolicy()
	if err != nil {
		return err
	}
	_, err = a.iam.CreateRole(ctx, &iam.CreateRoleInput{
		RoleName: &name, AssumeRolePolicyDocument: &trust, Tags: iamTags(a.tagsOf(pair)),
		Description: aws.String("The agent of " + pair.Managed.ARN() + " on the hub"),
	})
	if is[*iamtypes.MalformedPolicyDocumentException](err) {
		return fmt.Errorf("create IAM role %s, which %s may assume; see whether that role exists: %w", name, pair.ManagedRoleARN(), err)
	}
	if err != nil {
		return fmt.Errorf("create IAM role %s: %w", name, err)
	}
	return nil
}

func (a *Access) updateRole(ctx context.Context, role *iamtypes.Role, pair ekscluster.Pair) error {
	name, want := pair.HubRole(), a.tagsOf(pair)
	trust, err := pair.TrustPolicy()
	if err != nil {
		return err
	}
	if !samePolicy(aws.ToString(role.AssumeRolePolicyDocument), trust) {
		if _, err := a.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &name, PolicyDocument: &trust}); err != nil {
			return fmt.Errorf("update who may assume IAM role %s: %w", name, err)
		}
	}
	for _, tag := range role.Tags {
		if want[aws.ToString(tag.Key)] == aws.ToString(tag.Value) {
			delete(want, aws.ToString(tag.Key))
		}
	}
	if len(want) == 0 {
		return nil
	}
	if _, err := a.iam.TagRole(ctx, &iam.TagRoleInput{RoleName: &name, Tags: iamTags(want)}); err != nil {
		return fmt.Errorf("tag IAM role %s: %w", name, err)
	}
	return nil
}

func iamTags(tags map[string]string) (all []iamtypes.Tag) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, iamtypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return all
}

// samePolicy compares a policy as IAM returns it, escaped as in a URL, with one in JSON.
func samePolicy(escaped, want string) bool {
	document, err := url.QueryUnescape(escaped)
	if err != nil {
		return false
	}
	var current, desired any
	if json.Unmarshal([]byte(document), &current) != nil || json.Unmarshal([]byte(want), &desired) != nil {
		return false
	}
	return reflect.DeepEqual(current, desired)
}

// entry is nil if the role has none.
func (a *Access) entry(ctx context.Context, role string) (*ekstypes.AccessEntry, error) {
	arn := a.hub.RoleARN(role)
	got, err := a.eks.DescribeAccessEntry(ctx, &eks.DescribeAccessEntryInput{ClusterName: &a.hub.Name, PrincipalArn: &arn})
	if is[*ekstypes.ResourceNotFoundException](err) {
		return nil, nil
	}
	if err != nil {
		return nil, readError{fmt.Errorf("get the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)}
	}
	return got.AccessEntry, nil
}

func (a *Access) createEntry(ctx context.Context, cluster string, pair ekscluster.Pair) error {
	arn, user, groups := pair.HubRoleARN(), fleet.AWSClusterUser(cluster), []string{fleet.AWSClusterGroup(cluster)}
	_, err := a.eks.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
		ClusterName: &a.hub.Name, PrincipalArn: &arn, Username: &user, KubernetesGroups: groups, Tags: a.tagsOf(pair),
	})
	if err != nil {
		return fmt.Errorf("create the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)
	}
	return nil
}

func (a *Access) updateEntry(ctx context.Context, entry *ekstypes.AccessEntry, cluster string, pair ekscluster.Pair) error {
	arn, user, groups, want := pair.HubRoleARN(), fleet.AWSClusterUser(cluster), []string{fleet.AWSClusterGroup(cluster)}, a.tagsOf(pair)
	if aws.ToString(entry.Username) != user || !slices.Equal(entry.KubernetesGroups, groups) {
		_, err := a.eks.UpdateAccessEntry(ctx, &eks.UpdateAccessEntryInput{
			ClusterName: &a.hub.Name, PrincipalArn: &arn, Username: &user, KubernetesGroups: groups,
		})
		if err != nil {
			return fmt.Errorf("update the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)
		}
	}
	maps.DeleteFunc(want, func(key, value string) bool { return entry.Tags[key] == value })
	if len(want) == 0 {
		return nil
	}
	if _, err := a.eks.TagResource(ctx, &eks.TagResourceInput{ResourceArn: entry.AccessEntryArn, Tags: want}); err != nil {
		return fmt.Errorf("tag the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)
	}
	return nil
}

func (a *Access) deleteEntry(ctx context.Context, role string) error {
	arn := a.hub.RoleARN(role)
	_, err := a.eks.DeleteAccessEntry(ctx, &eks.DeleteAccessEntryInput{ClusterName: &a.hub.Name, PrincipalArn: &arn})
	if err != nil && !is[*ekstypes.ResourceNotFoundException](err) {
		return fmt.Errorf("delete the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)
	}
	return nil
}

// is reports whether an error is of a kind.
func is[T error](err error) bool {
	var kind T
	return errors.As(err, &kind)
}

// readError is the error of a request that was to change nothing.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// varying is what AWS names anew each time that it refuses the same: the request, and the session of a role.
var varying = regexp.MustCompile(`, RequestID: [^,]*|(:assumed-role/[^/\s]+)/\S+`)

// stable is an error as it is written to a status, without what varies.
func stable(err error) string { return varying.ReplaceAllString(text.Stable(err.Error()), "$1") }
