package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestGatewayFlags(t *testing.T) { // CG-01 CG-04
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, bad := file("spec: {clientIdentityExchanger: {rules: [{name: a, type: PrivilegedIdentityExchanger, source: {user: a}}]}}"),
		file("spec: {clientIdentityExchanger: {rules: [{name: a, type: Other, source: {user: a}}]}}")
	for _, test := range []struct {
		flags gatewayFlags
		want  string
	}{
		{newGatewayFlags(), ""},
		{gatewayFlags{namespace: "vela-system", rules: good}, ""},
		{gatewayFlags{namespace: "Vela"}, `--gateway-secret-namespace="Vela" cannot be the name of a namespace`},
		{gatewayFlags{namespace: "a", rules: "/absent"}, "--cluster-gateway-proxy-config: open /absent"},
		{gatewayFlags{namespace: "a", rules: bad}, `rules[0] (a): type is "Other"; use PrivilegedIdentityExchanger or`},
	} {
		o, err := test.flags.options(true)
		switch {
		case test.want == "" && (err != nil || o.Namespace != test.flags.namespace || !o.PenetrateIdentity || (o.Rules != nil) != (test.flags.rules != "")):
			t.Errorf("%+v: %+v, %v", test.flags, o, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%+v: %v, want %s", test.flags, err, test.want)
		}
	}
}
