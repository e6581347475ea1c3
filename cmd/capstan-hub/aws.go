package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capstan-io/capstan/internal/hub"
	"github.com/capstan-io/capstan/internal/machinery/eks"
)

const (
	flagHubARN      = "hub-cluster-arn"
	flagARNPatterns = "auto-approved-arn-patterns"
	flagAWSTags     = "aws-resource-tags"
)

// Limits of AWS on the tags of a role, less what the hub itself needs.
const (
	mostTags        = 40
	longestTagKey   = 128
	longestTagValue = 256
)

// awsFlags are those of registration by AWS IAM.
type awsFlags struct {
	hubARN   string
	patterns []string
	tags     []string
}

func (f *awsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.hubARN, flagHubARN, f.hubARN, "ARN of this hub, an EKS cluster, for the registration driver "+driverAWS+".")
	flags.StringArrayVar(&f.patterns, flagARNPatterns, f.patterns,
		"Regular expression for the ARNs of EKS clusters that are accepted without a person, which has to match a whole ARN; may be given several times. No "+
			"cluster is without the feature gate ManagedClusterAutoApproval.")
	flags.StringSliceVar(&f.tags, flagAWSTags, f.tags,
		"Tags of the IAM roles and access entries of clusters, in addition to the hub's own, each as KEY=VALUE or KEY:VALUE.")
}

// options are nil without the driver, which the other flags are for.
func (f *awsFlags) options(enabled bool) (*hub.AWSOptions, error) {
	if !enabled {
		for flag, set := range map[string]bool{flagHubARN: f.hubARN != "", flagARNPatterns: len(f.patterns) > 0, flagAWSTags: len(f.tags) > 0} {
			if set {
				return nil, fmt.Errorf("--%s is for the registration driver %s; add that to --%s, or leave the flag out", flag, driverAWS, flagDrivers)
			}
		}
		return nil, nil
	}
	cluster, err := eks.Parse(f.hubARN)
	if err != nil {
		return nil, fmt.Errorf("--%s, which the registration driver %s needs: %w", flagHubARN, driverAWS, err)
	}
	tags, err := parseTags(f.tags)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flagAWSTags, err)
	}
	return &hub.AWSOptions{Hub: cluster, Tags: tags}, nil
}

func parseTags(texts []string) (map[string]string, error) {
	tags, reserved := map[string]string{}, slices.Collect(maps.Keys(eks.Pair{}.Tags()))
	for _, text := range texts {
		key, value, found := strings.Cut(text, "=")
		if !found { // as ClusterManagers have them
			key, value, found = strings.Cut(text, ":")
		}
		switch {
		case !found || key == "":
			return nil, fmt.Errorf("%q is not KEY=VALUE", text)
		case len(key) > longestTagKey || len(value) > longestTagValue:
			return nil, fmt.Errorf("%q is too long: a key has at most %d characters, and a value %d", text, longestTagKey, longestTagValue)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return nil, fmt.Errorf("%q: keys that begin with aws: are those of AWS itself; choose another", text)
		case slices.Contains(reserved, key):
			return nil, fmt.Errorf("%q: the hub sets %s itself; choose another", text, key)
		}
		tags[key] = value
	}
	if len(tags) > mostTags {
		return nil, fmt.Errorf("there are %d tags, and room for %d", len(tags), mostTags)
	}
	return tags, nil
}
