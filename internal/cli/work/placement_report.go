package work

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/placement/report"
)

// noReportsHint is what to do where nobody writes reports.
const noReportsHint = "In an existing cluster, the placement controllers do at a port of their own, with the feature gate " +
	"PlacementDebugServer:\n" +
	"  kubectl --namespace " + fleet.NamespaceHub + " port-forward service/cluster-manager-placement 9443 &\n" +
	"  kubectl --namespace " + fleet.NamespaceHub + " get configmap " + fleet.ConfigMapCABundle +
	" --output jsonpath='{.data.ca-bundle\\.crt}' > ca.crt\n" +
	"and add --debug-server https://localhost:9443 --debug-server-ca ca.crt --debug-server-name " + hubapi.DebugServerName + "\n" +
	"The conditions of the Placement and the reasons in its PlacementDecisions tell part of it, too: \"capstan get placements -o yaml\", \"kubectl get " +
	"placementdecisions -o yaml\"."

// explainPlacement reads why a Placement selects what it does.
func explainPlacement(ctx context.Context, hub *hubapi.Hub, namespace, name string) (*report.Report, error) {
	r, err := getReport(ctx, hub, hub.Raw().Get().AbsPath(report.Path, namespace, name))
	return r, hub.Explain("explain placement "+name+" of namespace "+namespace, err)
}

// whatIf reads what a Placement that is not saved would select, and why.
func whatIf(ctx context.Context, hub *hubapi.Hub, placement *unstructured.Unstructured) (*report.Report, error) {
	body, err := json.Marshal(placement.Object)
	if err != nil {
		return nil, err
	}
	// AbsPath would take off the slash.
	r, err := getReport(ctx, hub, hub.Raw().Post().RequestURI(report.Path).SetHeader("Content-Type", "application/json").Body(body))
	return r, hub.Explain("find out what the placement would select", err)
}

func getReport(ctx context.Context, hub *hubapi.Hub, request *rest.Request) (*report.Report, error) {
	result := request.Do(ctx)
	err := result.Error()
	if hubapi.NotServed(err) {
		return nil, hubapi.Problem{Next: noReportsHint, Err: fmt.Errorf(
			"%s does not explain placements: a standalone hub of Capstan does, unless it runs without the placement controllers", hub.Server)}
	}
	if err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	r := &report.Report{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return r, nil
}
