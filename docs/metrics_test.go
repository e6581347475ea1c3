package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"
)

// alertsFile has the alert rules.
const alertsFile = "../deploy/alerts/capstan.yaml"

var (
	metricRow  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (.*?) \\|")
	quoted     = regexp.MustCompile("`([^`]+)`")
	selectors  = regexp.MustCompile(`\{[^}]*\}|\b(?:by|without) *\([^)]*\)|\[[^\]]*\]`)
	identifier = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*\b(?: *\()?`)
)

// TestMetrics holds the table of our metrics on docs/metrics.md against those that the code makes, with their labels.
func TestMetrics(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(readMetricsPage(t), "\n## Metrics of Capstan\n")
	table, _, _ = strings.Cut(table, "\n## ")
	documented := map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(table, -1) {
		var labels []string
		for _, label := range quoted.FindAllStringSubmatch(row[2], -1) {
			labels = append(labels, label[1])
		}
		documented[row[1]] = strings.Join(labels, ", ")
	}
	if made := metricsInCode(t); !maps.Equal(documented, made) {
		t.Errorf("docs/metrics.md has the metrics %v, the code makes %v", documented, made)
	}
}

// TestAlerts holds the alert rules against docs/metrics.md: each is on the page, and so are the metrics that it looks at.
func TestAlerts(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	text := readMetricsPage(t)
	named := map[string]bool{"up": true}
	for _, row := range metricRow.FindAllStringSubmatch(text, -1) {
		named[row[1]] = true
	}
	alerts := map[string]bool{}
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			alerts[rule.Alert] = true
			if !strings.Contains(text, "`"+rule.Alert+"`") {
				t.Errorf("docs/metrics.md does not say what alert %s is", rule.Alert)
			}
			for _, metric := range metricsOf(rule.Expr) {
				if !named[metric] {
					t.Errorf("alert %s looks at %s, which docs/metrics.md does not have", rule.Alert, metric)
				}
			}
		}
	}
	for _, name := range regexp.MustCompile("`(Capstan[A-Za-z]+)`").FindAllStringSubmatch(text, -1) {
		if !alerts[name[1]] {
			t.Errorf("docs/metrics.md has the alert %s, which %s does not", name[1], alertsFile)
		}
	}
}

// TestRequestsToClusters has alerts about requests to the hub leave out those that clusters answer, or fail to.
func TestRequestsToClusters(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	ofAnyResource := regexp.MustCompile(`apiserver_request_total\{[^}]*resource!=""[^}]*\}`).FindAllString(string(content), -1)
	if len(ofAnyResource) == 0 {
		t.Errorf("no alert of %s is about requests for any resource", alertsFile)
	}
	for _, selector := range ofAnyResource {
		if !strings.Contains(selector, `subresource!="proxy"`) {
			t.Errorf("%s also selects requests to clusters", selector)
		}
	}
}

func readMetricsPage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// metricsOf are the metrics in an expression, without the buckets of histograms.
func metricsOf(expression string) (metrics []string) {
	for _, name := range identifier.FindAllString(selectors.ReplaceAllString(expression, " "), -1) {
		if !strings.HasSuffix(name, "(") {
			metrics = append(metrics, strings.TrimSuffix(name, "_bucket"))
		}
	}
	return metrics
}

// metricsInCode finds the metrics that the code makes, with their labels.
func metricsInCode(t *testing.T) map[string]string {
	t.Helper()
	metrics := map[string]string{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (slices.Contains([]string{"testdata", "test", "tools"}, entry.Name()) ||
			path != ".." && strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				if name, labels, isMetric := metricOf(t, path, call); isMetric {
					metrics[name] = labels
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(metrics) == 0 {
		t.Fatal("the code makes no metrics, or not as this test expects")
	}
	return metrics
}

// metricOf reads a call such as prometheus.NewHistogramVec(prometheus.HistogramOpts{…}, []string{…}).
func metricOf(t *testing.T, path string, call *ast.CallExpr) (name, labels string, isMetric bool) {
	t.Helper()
	if len(call.Args) == 0 {
		return "", "", false
	}
	options, ok := call.Args[0].(*ast.CompositeLit)
	if !ok {
		return "", "", false
	}
	if kind, ok := options.Type.(*ast.SelectorExpr); !ok || !strings.HasSuffix(kind.Sel.Name, "Opts") || !isPackage(kind.X, "prometheus") {
		return "", "", false
	}
	parts := map[string]string{}
	for _, element := range options.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && slices.Contains([]string{"Namespace", "Subsystem", "Name"}, key.Name) {
				parts[key.Name] = textOf(t, path, pair.Value)
			}
		}
	}
	var names []string
	if len(call.Args) > 1 {
		if list, ok := call.Args[1].(*ast.CompositeLit); ok {
			for _, label := range list.Elts {
				names = append(names, textOf(t, path, label))
			}
		}
	}
	return prometheus.BuildFQName(parts["Namespace"], parts["Subsystem"], parts["Name"]), strings.Join(names, ", "), true
}

func isPackage(expression ast.Expr, name string) bool {
	identifier, ok := expression.(*ast.Ident)
	return ok && identifier.Name == name
}

func textOf(t *testing.T, path string, expression ast.Expr) string {
	t.Helper()
	literal, ok := expression.(*ast.BasicLit)
	if !ok {
		t.Fatalf("%s: a part of the name of a metric, or a label, is no literal, so that docs/metrics.md cannot be held against it", path)
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
