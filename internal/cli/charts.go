package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/cli/install"
	"github.com/capstan-io/capstan/internal/cli/playground"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// chartRepository is where the charts of the hub's side of add-ons are.
const chartRepository = "https://open-cluster-management.io/helm-charts"

// chartProgram installs Helm charts. Helm's library would make every command slower to start, and this program three times as
// large.
const chartProgram = "capstan-charts"

// charts runs the program for charts against a hub.
type charts struct {
	source hubapi.Source
	values map[string]any // for --values -
}

// run runs it and returns what it printed.
func (c charts) run(ctx context.Context, args ...string) (string, error) {
	path, err := playground.FindProgram(chartProgram)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, path, append(args, "--kube-context", c.source.Context)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+c.source.File) // which may be several files
	content, err := json.Marshal(c.values)
	if err != nil {
		return "", err
	}
	command.Stdin = bytes.NewReader(content)
	return runCharts(ctx, command)
}

// runCharts returns what the program for charts printed, or what it said was wrong.
func runCharts(ctx context.Context, command *exec.Cmd) (string, error) {
	var out, errOut bytes.Buffer
	command.Stdout, command.Stderr = &out, &errOut
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s %s: %w", chartProgram, command.Args[1], context.Cause(ctx))
		}
		if said := strings.TrimSpace(errOut.String()); said != "" {
			return "", fmt.Errorf("%s", said)
		}
		return "", fmt.Errorf("%s %s: %w", chartProgram, command.Args[1], err)
	}
	return out.String(), nil
}

// renderChart returns the objects of a chart that the program for charts contains, in the namespace of the operators, for a version of
// Kubernetes. Values go through a pipe: other users of the machine see the arguments of processes, and there may be secrets in them.
func renderChart(ctx context.Context, chart, kubeVersion string, values map[string]any) ([]*unstructured.Unstructured, error) {
	path, err := playground.FindProgram(chartProgram)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, path, "render", chart, "--release", chart, "--namespace", fleet.NamespaceOperators,
		"--kube-version", kubeVersion)
	command.Stdin = bytes.NewReader(content)
	manifests, err := runCharts(ctx, command)
	if err != nil {
		return nil, err
	}
	objects, err := install.Parse(manifests)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", chart, err)
	}
	for _, object := range objects {
		forgetHelm(object)
	}
	return objects, nil
}

// forgetHelm takes off what says that Helm keeps an object: nothing that is applied here is a part of a release.
func forgetHelm(object *unstructured.Unstructured) {
	annotations, labels := object.GetAnnotations(), object.GetLabels()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return strings.HasPrefix(name, "meta.helm.sh/") || strings.HasPrefix(name, "helm.sh/")
	})
	if labels["app.kubernetes.io/managed-by"] == "Helm" {
		labels["app.kubernetes.io/managed-by"] = "capstan"
	}
	object.SetAnnotations(annotations)
	object.SetLabels(labels)
}
