package lease_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/addon/lease"
)

// The agent renews its lease as long as what it needs works.
func ExampleUpdater() {
	ctx, stop := context.WithCancel(context.Background())
	reachesHub := func(context.Context) error {
		fmt.Println("the hub answers")
		stop() // a real agent goes on
		return nil
	}
	cluster := &rest.Config{Host: "https://cluster.example.com"} // in a pod: rest.InClusterConfig
	updater, err := lease.New(cluster, lease.Options{AddOn: "hello", Namespace: "hello-system", Checks: []lease.Check{reachesHub}})
	if err != nil {
		panic(err)
	}
	fmt.Println("ended:", updater.Start(ctx)) // or mgr.Add(updater), with a manager of controller-runtime
	// Output:
	// the hub answers
	// ended: <nil>
}
