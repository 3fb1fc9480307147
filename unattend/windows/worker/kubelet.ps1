# The kubelet as a native service. Settings: command. It starts with Windows; before the join it has nothing to do.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

Invoke-Step {
    if ((Get-ServiceState 'containerd') -eq 'absent') { throw 'containerd is not set up: containerd.ps1 comes first.' }
    foreach ($name in 'kubelet.exe', 'kubeadm.exe') {
        $path = "$ProgramFolder\$name"
        if (-not (Test-Path -LiteralPath $path)) { throw "$path is missing: binaries.ps1 comes first." }
    }
    $command = "$($settings.command)"
    Confirm-Command $command 'binaries.ps1'
    $joined = Test-Joined
    # stopped before it is changed, so that the next run can complete one that was interrupted
    if ($joined -and (Get-ServiceCommand 'kubelet') -cne $command) { Stop-Running 'kubelet' | Out-Null }
    $changed = Set-NativeService 'kubelet' 'kubelet' $command @('containerd')
    if ($joined -and (Get-ServiceState 'kubelet') -ne 'running') {
        Start-Service -Name 'kubelet'
        $changed = $true
    }
    return @{ changed = [bool]$changed }
}
