// Package gitops judges objects as GitOps tools do: by kstatus, which Flux and others go by, and by the health scripts for
// Argo CD in config/argocd, run as Argo CD runs them.
//
// Its tests hold Doorstep to what such tools need, with real processes against a real API server: a manifest that is
// applied again changes nothing and shows no difference, whatever manager and worker have written meanwhile; nothing of a
// user's object is owned by anybody else; and what the tools say of an object is so.
package gitops
