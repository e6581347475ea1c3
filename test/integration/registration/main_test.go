// Package registration tests how clusters join a hub, stay and leave, and what their agents may do there. The hub, the cluster and the
// agents between them are processes of their own.
package registration

import (
	"fmt"
	"os"
	"testing"

	"github.com/capstan-io/capstan/test/integration/framework"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(memberConfig); file != "" {
		fmt.Fprintln(os.Stderr, runMember(file))
		os.Exit(1)
	}
	os.Exit(framework.Run(m, framework.Shared{Hub: true, Managed: true}))
}
