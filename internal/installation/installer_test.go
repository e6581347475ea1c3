package installation

import "testing"

// CA-11, CA-19, CA-20: who keeps an object is told by the labels and annotations that are its tool's own, and by no others.
func TestInstallerOf(t *testing.T) {
	t.Parallel()
	helm := map[string]string{annotationReleaseName: "ocm", annotationReleaseNamespace: "one"}
	for name, test := range map[string]struct {
		labels, annotations map[string]string
		want                Installer
	}{
		"nobody": {},
		"a chart without Helm": {
			labels: map[string]string{"app.kubernetes.io/instance": "ocm", "app.kubernetes.io/managed-by": "capstan", "app": "ocm"}},
		"Helm": {annotations: helm, want: Installer{
			Name: "Helm (release ocm in namespace one)", Uninstall: `run "helm uninstall ocm --namespace one"`}},
		"the Operator Lifecycle Manager": {labels: map[string]string{"olm.owner": "ocm.v1"}, want: Installer{
			Name: "the Operator Lifecycle Manager (ocm.v1)", Uninstall: "delete its Subscription and ClusterServiceVersion ocm.v1", Restores: true}},
		"Argo CD, by an annotation": {
			annotations: map[string]string{"argocd.argoproj.io/tracking-id": "fleet:apps/Deployment:one/klusterlet"}, want: Installer{
				Name: "Argo CD (Application fleet)", Uninstall: "take it out of what Application fleet applies, or delete that", Restores: true}},
		"Argo CD, by a label": {labels: map[string]string{"argocd.argoproj.io/instance": "fleet"}, want: Installer{
			Name: "Argo CD (Application fleet)", Uninstall: "take it out of what Application fleet applies, or delete that", Restores: true}},
		"Flux": {labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "two"},
			want: Installer{Name: "Flux (Kustomization two/fleet)",
				Uninstall: "take it out of what Kustomization two/fleet applies, or delete that", Restores: true}},
		"Flux, by Helm": {annotations: helm,
			labels: map[string]string{"helm.toolkit.fluxcd.io/name": "fleet", "helm.toolkit.fluxcd.io/namespace": "two"},
			want: Installer{Name: "Flux (HelmRelease two/fleet)",
				Uninstall: "take it out of what HelmRelease two/fleet applies, or delete that", Restores: true}},
	} {
		if got := InstallerOf(test.labels, test.annotations); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		running := Running{Labels: test.labels, Annotations: test.annotations}
		if got := running.Installer(); got != test.want {
			t.Errorf("a Deployment, %s: %+v, want %+v", name, got, test.want)
		}
	}
}
