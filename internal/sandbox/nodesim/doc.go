// Package nodesim plays the kubelets of a sandbox cluster.
//
// It registers a fixed number of Node objects, keeps them Ready, and gives the
// pods bound to them the status a kubelet would report: Running and Ready with
// a pod IP, Succeeded for the pods of a Job, gone after a delete. Nothing is
// executed: no image is pulled, no volume mounted, no probe called, and there
// are neither logs nor anything to exec into.
//
// Everything is derived from the API objects, so a simulator that was killed
// and started again carries on where it stopped.
package nodesim
