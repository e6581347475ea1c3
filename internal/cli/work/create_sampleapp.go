package work

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/options"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

const (
	sampleAppName      = "sampleapp"
	sampleAppPlacement = "app-placement"
	argoNamespace      = "argocd"
)

const createSampleAppLong = `Create an ApplicationSet of Argo CD, as an example, that brings an application to the clusters of a placement.

It is NAME-appset in namespace argocd, and NAME is sampleapp if it is left out. It follows placement app-placement there, by
means of ConfigMap ocm-placement-generator. Each cluster pulls its Application, which needs Argo CD on the hub and on the cluster.
"capstan create placement app-placement --namespace argocd" makes the placement.`

// sampleAppCreation is one run of "capstan create sampleapp".
type sampleAppCreation struct {
	*options.Global
	outputFile string
}

// NewCreateSampleAppCommand is "capstan create sampleapp".
func NewCreateSampleAppCommand(global *options.Global) *cobra.Command {
	c := &sampleAppCreation{Global: global}
	command := &cobra.Command{
		Use:               "sampleapp [NAME]",
		Short:             "Create an example of an application that Argo CD brings to clusters",
		Long:              createSampleAppLong,
		Example:           "  capstan create sampleapp\n  capstan create sampleapp web --dry-run",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().StringVar(&c.outputFile, "output-file", "", "write what was applied to this file")
	command.RunE = func(command *cobra.Command, args []string) error {
		name := sampleAppName
		if len(args) > 0 {
			name = args[0]
		}
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("NAME: %q: %s", name, strings.Join(problems, "; "))
		}
		if err := options.CheckOutputFile(c.outputFile); err != nil {
			return err
		}
		set := newSampleApp(name)
		if c.DryRun {
			c.AnnounceDryRun(command)
			return c.Render(set.Object)
		}
		return c.ChangeHub(command, func(ctx context.Context, hub *hubapi.Hub) error {
			if err := c.create(ctx, hub, set); err != nil {
				return err
			}
			return c.WriteApplied(c.outputFile, []any{set.Object})
		})
	}
	return command
}

func (c *sampleAppCreation) create(ctx context.Context, hub *hubapi.Hub, set *unstructured.Unstructured) error {
	resource, err := hub.ResourceOf(ctx, set.GroupVersionKind())
	if err != nil {
		return fmt.Errorf("the hub needs Argo CD: %w", err)
	}
	err = hub.Apply(ctx, resource, set)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the hub has no namespace %s: install Argo CD there: %w", argoNamespace, err)
	}
	if err == nil {
		c.Say("ApplicationSet %s is created in namespace %s", set.GetName(), argoNamespace)
	}
	return err
}

// newSampleApp is an ApplicationSet whose Applications the clusters pull.
func newSampleApp(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "argoproj.io/v1alpha1",
		"kind":       "ApplicationSet",
		"metadata":   map[string]any{"namespace": argoNamespace, "name": name + "-appset"},
		"spec": map[string]any{
			"generators": []any{map[string]any{"clusterDecisionResource": map[string]any{
				"configMapRef":        "ocm-placement-generator",
				"labelSelector":       map[string]any{"matchLabels": map[string]any{fleet.LabelPlacement: sampleAppPlacement}},
				"requeueAfterSeconds": int64(30),
			}}},
			"template": map[string]any{
				"metadata": map[string]any{
					"name":   name + "-{{clusterName}}",
					"labels": map[string]any{fleet.LabelArgoPull: fleet.LabelTrue},
					"annotations": map[string]any{
						fleet.AnnotationArgoCluster: "{{clusterName}}",
						fleet.AnnotationArgoSkip:    fleet.LabelTrue,
					},
				},
				"spec": map[string]any{
					"project": "default",
					"source": map[string]any{"repoURL": "https://github.com/argoproj/argocd-example-apps.git", "targetRevision": "HEAD",
						"path": "guestbook"},
					"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": name},
					"syncPolicy": map[string]any{"automated": map[string]any{"prune": true},
						"syncOptions": []any{"CreateNamespace=true"}},
				},
			},
		},
	}}
}
