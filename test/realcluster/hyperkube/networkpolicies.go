package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	nfqueue "github.com/florianl/go-nfqueue/v2"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/api"
	"sigs.k8s.io/kube-network-policies/pkg/network"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
	"sigs.k8s.io/kube-network-policies/pkg/podinfo"
)

// queue is the number of the queue that the kernel asks about packets.
const queue = 100

// queueRules have the kernel ask about the first packets of connections to and from pods, once it knows their final destination. What the
// node itself sends, such as probes, matches none of them. Without an answer it lets packets through.
//
// kube-network-policies has a controller that writes such rules, and more efficient ones, but they take an option of the kernel (NFT_QUEUE)
// that not every machine has.
var queueRules = [][]string{
	{"FORWARD", "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", strconv.Itoa(queue), "--queue-bypass"},
	{"INPUT", "-i", "cni0", "-m", "conntrack", "--ctstate", "NEW", "-j", "NFQUEUE", "--queue-num", strconv.Itoa(queue), "--queue-bypass"},
}

// enforceNetworkPolicies enforces the NetworkPolicies of the cluster for the pods on the node, for new connections.
func enforceNetworkPolicies() {
	kubeconfig := flag.String("kubeconfig", "", "path of the kubeconfig")
	node := flag.String("hostname-override", "", "name of the node")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := enforce(ctx, *kubeconfig, *node)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func enforce(ctx context.Context, kubeconfig, node string) error {
	engine, err := startEngine(ctx, kubeconfig, node)
	if err != nil {
		return err
	}
	socket, err := nfqueue.Open(&nfqueue.Config{
		NfQueue:      queue,
		Flags:        nfqueue.NfQaCfgFlagGSO,
		MaxPacketLen: 128, // the headers
		MaxQueueLen:  1024,
		Copymode:     nfqueue.NfQnlCopyPacket,
		WriteTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return fmt.Errorf("open the queue: %w", err)
	}
	defer socket.Close()
	decide := func(packet nfqueue.Attribute) int {
		if err := socket.SetVerdict(*packet.PacketID, verdict(ctx, engine, packet)); err != nil {
			klog.ErrorS(err, "The kernel did not take a verdict")
		}
		return 0
	}
	failed := func(err error) int {
		klog.V(2).ErrorS(err, "The kernel sent no packet")
		return 0
	}
	if err := socket.RegisterWithErrorFunc(ctx, decide, failed); err != nil {
		return fmt.Errorf("read the queue: %w", err)
	}
	if err := addRules(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func startEngine(ctx context.Context, kubeconfig, node string) (*networkpolicy.PolicyEngine, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	resolver, err := podinfo.NewInformerResolver(pods.Informer())
	if err != nil {
		return nil, err
	}
	policies := networkpolicy.NewStandardNetworkPolicy(node, namespaces, pods, factory.Networking().V1().NetworkPolicies())
	policies.SetDataplaneSyncCallback(func() {}) // the rules are always the same
	engine := networkpolicy.NewPolicyEngine(
		podinfo.NewInformerProvider(pods, namespaces, nil, []podinfo.IPResolver{resolver}),
		[]api.PolicyEvaluator{policies},
	)
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), engine.Ready) {
		return nil, ctx.Err()
	}
	return engine, nil
}

func verdict(ctx context.Context, engine *networkpolicy.PolicyEngine, queued nfqueue.Attribute) int {
	packet, err := network.ParsePacket(*queued.Payload)
	if err != nil { // neither TCP nor UDP, which policies do not speak of
		return nfqueue.NfAccept
	}
	packet.ID = *queued.PacketID
	allowed, err := engine.EvaluatePacket(ctx, &packet)
	if err != nil {
		klog.ErrorS(err, "Policies cannot be evaluated", "packet", packet)
	}
	if !allowed {
		klog.InfoS("Denied", "packet", packet)
		return nfqueue.NfDrop
	}
	return nfqueue.NfAccept
}

// addRules adds those that an earlier run of the program has not added.
func addRules(ctx context.Context) error {
	for _, rule := range queueRules {
		if iptables(ctx, "-C", rule) == nil {
			continue
		}
		if err := iptables(ctx, "-I", rule); err != nil {
			return err
		}
	}
	return nil
}

func iptables(ctx context.Context, action string, rule []string) error {
	command := exec.CommandContext(ctx, "iptables", append([]string{"--wait", "--table", "mangle", action}, rule...)...)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, output)
	}
	return nil
}
