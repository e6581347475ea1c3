package forwardproxy

import (
	"encoding/pem"
	"slices"
)

// useHeader marks the certificates in a bundle that are for the proxy alone. crypto/x509 takes no PEM block with headers for a
// certificate, so a client in Go that verifies the hub with the bundle does not trust them for the hub.
const (
	useHeader = "Capstan-Use"
	useProxy  = "proxy"
)

// ForProxy marks certificates as those that only an HTTPS proxy is verified with, so that they can be in one PEM bundle with those of
// the hub, as a kubeconfig has one place for both.
func ForProxy(certificates []byte) []byte {
	return rewrite(certificates, func(block *pem.Block) { block.Headers = map[string]string{useHeader: useProxy} })
}

// ForBoth takes the marks of ForProxy off, for clients that verify a proxy as they verify the hub.
func ForBoth(bundle []byte) []byte {
	return rewrite(bundle, func(block *pem.Block) { block.Headers = nil })
}

// OfProxy are the certificates with the marks of ForProxy, as they are.
func OfProxy(bundle []byte) []byte {
	var marked []byte
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if isForProxy(block) {
			marked = append(marked, pem.EncodeToMemory(block)...)
		}
	}
	return marked
}

func isForProxy(block *pem.Block) bool { return block.Headers[useHeader] == useProxy }

// rewrite changes the blocks of certificates that are for nothing else. A bundle without any stays as it is.
func rewrite(bundle []byte, change func(*pem.Block)) []byte {
	var blocks []*pem.Block
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		blocks = append(blocks, block)
	}
	plain := func(block *pem.Block) bool { return len(block.Headers) == 0 || isForProxy(block) }
	if !slices.ContainsFunc(blocks, plain) {
		return bundle
	}
	var rewritten []byte
	for _, block := range blocks {
		if plain(block) {
			change(block)
		}
		rewritten = append(rewritten, pem.EncodeToMemory(block)...)
	}
	return rewritten
}
