# Kubernetes' programs to C:\k and the CNI plug-ins to C:\opt\cni\bin, checked against payload.json. No settings.
. (Join-Path $PSScriptRoot 'common.ps1')

Invoke-Step {
    if ((Get-ServiceState 'containerd') -eq 'absent') { throw 'containerd is not set up: containerd.ps1 comes first.' }
    $programs = Get-Listed 'programs'
    $plugins = Get-Listed 'cni'
    foreach ($name in 'kubeadm.exe', 'kubelet.exe', 'kube-proxy.exe') {
        if (-not $programs.ContainsKey($name)) { throw "winlab's CD has no $name." }
    }
    # also the folders above: anyone who may rename one of those can replace what is in it
    foreach ($folder in $ProgramFolder, 'C:\opt', 'C:\etc') { Set-FolderAcl $folder $ProgramsFolder }
    New-Folder $NetworkFolder, 'C:\etc\kubernetes\pki', 'C:\etc\kubernetes\manifests', 'C:\var\lib\kubelet',
        'C:\var\log\kubelet', 'C:\var\log\kube-proxy', (Split-Path -Parent $KubeadmLog)

    $names = 'kubeadm.exe', 'kubelet.exe', 'kubectl.exe', 'kube-proxy.exe', 'kube-log-runner.exe' |
        Where-Object { $programs.ContainsKey($_) }
    $stale = @($names | Where-Object { Test-Stale "$ProgramFolder\$_" $programs[$_] })
    $touched = @()
    if ($stale -contains 'kube-proxy.exe' -or $stale -contains 'kube-log-runner.exe') { $touched += 'kube-proxy' }
    if ($stale -contains 'kubelet.exe' -or $stale -contains 'kube-log-runner.exe') { $touched += 'kubelet' }
    $ran = @()
    if ($touched.Count -gt 0) { $ran = @(Stop-Running $touched) }
    $changed = $stale.Count -gt 0
    try {
        foreach ($name in $stale) {
            Write-Progressing "copying $name"
            Install-File (Join-Path $Payload "programs\$name") "$ProgramFolder\$name" $programs[$name] | Out-Null
        }
        foreach ($name in $plugins.Keys) {
            if (Test-Stale "$PluginFolder\$name" $plugins[$name]) {
                Install-File (Join-Path $Payload "cni\$name") "$PluginFolder\$name" $plugins[$name] | Out-Null
                $changed = $true
            }
        }
    } finally {
        Start-Again $ran
    }
    Save-Volume # before the record, which may otherwise reach the disk first
    Write-Text $InstalledFrom (Get-Sha256 (Join-Path $Payload 'payload.json')) | Out-Null
    return @{ changed = [bool]$changed }
}
