# kube-proxy as a native service. Settings: command, kubeconfig, config, and source_endpoint if kube-proxy needs the
# address of an HNS endpoint as its sourceVip: only the node knows that address.
. (Join-Path $PSScriptRoot 'common.ps1')
$settings = Read-Settings @($input)

$folder = 'C:\var\lib\kube-proxy'

# The network's own agent makes this endpoint; winlab waits for it before it calls this script
function Get-SourceVip([string]$Name) {
    Write-Progressing "waiting for the HNS endpoint '$Name'"
    for ($try = 0; $try -lt 30; $try++) {
        $endpoint = Get-HnsEndpoint | Where-Object { $_.Name -eq $Name }
        if ($endpoint) { return "$(@($endpoint)[0].IPAddress)" }
        Start-Sleep -Seconds 1
    }
    throw "There is no HNS endpoint '$Name' after half a minute: the network's agent on this node has not made it."
}

Invoke-Step {
    if (-not (Test-Joined)) { throw 'This node has not joined a cluster: join.ps1 comes first.' }
    if (-not (Test-Path -LiteralPath "$ProgramFolder\kube-proxy.exe")) {
        throw "$ProgramFolder\kube-proxy.exe is missing: binaries.ps1 comes first."
    }
    foreach ($field in 'command', 'kubeconfig', 'config') {
        if (-not "$($settings.$field)".Trim()) { throw "settings.$field is empty." }
    }
    if ("$($settings.kubeconfig)" -match 'client-key') {
        throw 'settings.kubeconfig has a client key; kube-proxy gets a token.'
    }
    $config = "$($settings.config)"
    $command = "$($settings.command)"
    Confirm-Command $command 'binaries.ps1'
    if ($settings.source_endpoint) {
        $section = [regex]'(?m)^winkernel:[ \t]*\r?\n'
        if (-not $section.IsMatch($config) -or $config -match 'sourceVip:') {
            throw 'settings.config must have a section winkernel without a sourceVip, which source_endpoint gives.'
        }
        $config = $section.Replace($config, "winkernel:`n  sourceVip: $(Get-SourceVip $settings.source_endpoint)`n", 1)
    }

    $kubeconfig = "$($settings.kubeconfig)"
    $other = (Get-Text "$folder\kubeconfig") -cne $kubeconfig
    $stale = Test-ProxyStale
    $changed = $stale -or $other -or (Get-Text "$folder\config.yaml") -cne $config -or
        (Get-ServiceCommand 'kube-proxy') -cne $command
    # stopped before anything is changed, so that the next run can complete one that was interrupted
    if ($changed) { Stop-Running 'kube-proxy' | Out-Null }
    # only kube-proxy makes policy lists, and it does not remove those of a network that was removed
    if ($stale) { Get-HnsPolicyList | Remove-HnsPolicyList }
    Set-FolderAcl $folder $PrivateFolder
    Write-Text "$folder\config.yaml" $config | Out-Null
    if ($other) { Write-Secret "$folder\kubeconfig" $kubeconfig }
    # when Windows starts, kube-proxy must wait for HNS, which it programs
    Set-NativeService 'kube-proxy' 'kube-proxy' $command @('hns') | Out-Null
    # recorded as it was before the start: kube-proxy may not notice a network that is created again meanwhile
    $network = Get-ProxyNetwork
    if ((Get-ServiceState 'kube-proxy') -ne 'running') {
        # kube-proxy ends while its network is missing, and the recovery actions start it again
        try {
            Start-Service -Name 'kube-proxy'
            $changed = $true
        } catch {
            Write-Progressing "kube-proxy does not start yet: $($_.Exception.Message)"
        }
    }
    $state = Get-ServiceState 'kube-proxy'
    if ($changed -and $state -eq 'running') { Write-Text $ProxyNetwork $network | Out-Null }
    return @{ changed = [bool]$changed; service = $state }
}
