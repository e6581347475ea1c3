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
	if err != nil || entry == nil {
		return "", err
	}
	return clusterOf(entry), nil
}

// clusterOf is the cluster whose access entry it is. The user of one that a hub of the original has made is the bare name.
func clusterOf(entry *ekstypes.AccessEntry) string {
	return strings.TrimPrefix(aws.ToString(entry.Username), fleet.AWSClusterUser(""))
}

// grant gives a cluster access, in place of the holder. It changes nothing that is as it should be.
func (a *Access) grant(ctx context.Context, cluster, owner string, pair ekscluster.Pair) error {
	if err := a.ensureRole(ctx, pair); err != nil {
		return err
	}
	return a.ensureEntry(ctx, cluster, owner, pair)
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

func (a *Access) ensureRole(ctx context.Context, pair ekscluster.Pair) error {
	name, want := pair.HubRole(), a.tagsOf(pair)
	trust, err := pair.TrustPolicy()
	if err != nil {
		return err
	}
	got, err := a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: &name})
	if is[*iamtypes.NoSuchEntityException](err) {
		return a.createRole(ctx, pair, trust)
	}
	if err != nil {
		return fmt.Errorf("get IAM role %s: %w", name, err)
	}
	if !samePolicy(aws.ToString(got.Role.AssumeRolePolicyDocument), trust) {
		if _, err := a.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: &name, PolicyDocument: &trust}); err != nil {
			return fmt.Errorf("update who may assume IAM role %s: %w", name, err)
		}
	}
	for _, tag := range got.Role.Tags {
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

// createRole makes the role, and before that deletes the access entry by its name: an entry is for the role that had the name when it was
// made, and not for a later one. Once there is the role, nothing tells that its entry is an earlier one's.
func (a *Access) createRole(ctx context.Context, pair ekscluster.Pair, trust string) error {
	name := pair.HubRole()
	if err := a.deleteEntry(ctx, name); err != nil {
		return err
	}
	_, err := a.iam.CreateRole(ctx, &iam.CreateRoleInput{
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

func iamTags(tags map[string]string) (all []iamtypes.Tag) {
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		all = append(all, iamtypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return all
}

// samePolicy compares a policy as IAM returns it, escaped as in a URL, with one in JSON.
func samePolicy(escaped, want string) bool {
	text, err := url.QueryUnescape(escaped)
	if err != nil {
		return false
	}
	var current, desired any
	if json.Unmarshal([]byte(text), &current) != nil || json.Unmarshal([]byte(want), &desired) != nil {
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
		return nil, fmt.Errorf("get the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)
	}
	return got.AccessEntry, nil
}

func (a *Access) ensureEntry(ctx context.Context, cluster, owner string, pair ekscluster.Pair) error {
	arn, user, groups, want := pair.HubRoleARN(), fleet.AWSClusterUser(cluster), []string{fleet.AWSClusterGroup(cluster)}, a.tagsOf(pair)
	entry, err := a.entry(ctx, pair.HubRole())
	if err != nil {
		return err
	}
	if entry == nil {
		_, err := a.eks.CreateAccessEntry(ctx, &eks.CreateAccessEntryInput{
			ClusterName: &a.hub.Name, PrincipalArn: &arn, Username: &user, KubernetesGroups: groups, Tags: want,
		})
		if err != nil {
			return fmt.Errorf("create the access entry of %s in EKS cluster %s: %w", arn, a.hub.Name, err)
		}
		return nil
	}
	if now := clusterOf(entry); now != cluster && now != owner {
		return fmt.Errorf("the access entry of %s in EKS cluster %s has become that of %q meanwhile", arn, a.hub.Name, now)
	}
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

var requestID = regexp.MustCompile(`, RequestID: [^,]*`)

// stable is an error without what differs each time that the same is refused, as it is written to a status.
func stable(err error) string { return requestID.ReplaceAllString(err.Error(), "") }
