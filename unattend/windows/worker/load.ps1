# Imports the CD's images into containerd. No settings.
. (Join-Path $PSScriptRoot 'images.ps1')

Invoke-Step {
    if ((Get-ServiceState 'containerd') -ne 'running') { throw 'containerd does not run: containerd.ps1 comes first.' }
    return @{ changed = [bool](Import-Images) }
}
